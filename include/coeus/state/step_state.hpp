// SPDX-License-Identifier: Apache-2.0
// StepState: owns the scalars of a step in the memory of a device (kernels/step_scalars.hpp), and a copy of
// them that the host reads and writes; on the host it is the same.
#pragma once

#include "coeus/device/exec.hpp"
#include "coeus/kernels/step_scalars.hpp"

namespace coeus {

class StepState {
public:
    explicit StepState(const Device& device = host_device());

    /// For kernels alone: the host may not follow the reference where it is a GPU's.
    StepScalars& scalars() const { return *scalars_; }
    /// Writes the copy. What was brought before has arrived.
    void stage(const StepScalars& scalars) { *mirror_ = scalars; }
    /// Puts it there, as work of the Exec.
    void bring(Exec& exec) const;
    /// As they are when all work of the Exec is done.
    const StepScalars& read(const Exec& exec) const;
    /// As they were when last read or staged.
    const StepScalars& last_read() const { return *mirror_; }

private:
    Buffer buffer_, staging_;
    StepScalars *scalars_, *mirror_;
};

}  // namespace coeus
