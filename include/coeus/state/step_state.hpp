// SPDX-License-Identifier: Apache-2.0
// StepState: the scalars of a step in device memory (kernels/step_scalars.hpp), and a copy of them that the
// host reads and writes. On the host the two are the same.
#pragma once

#include "coeus/device/exec.hpp"
#include "coeus/kernels/step_scalars.hpp"

namespace coeus {

class StepState {
public:
    explicit StepState(const Device& device = host_device());

    /// For kernels only: the host must not dereference it if it is in a GPU's memory.
    StepScalars& scalars() const { return *scalars_; }
    /// Writes the host copy. An earlier bring() must be complete.
    void stage(const StepScalars& scalars) { *mirror_ = staged_ = scalars; }
    /// The same with the scalars that were staged last.
    void stage_again() { *mirror_ = staged_; }
    /// Copies the host copy to the device, as work of the Exec.
    void bring(Exec& exec) const;
    /// Waits for all work of the Exec, and returns the scalars as they are then.
    const StepScalars& read(const Exec& exec) const;
    /// The scalars as they were last read or staged.
    const StepScalars& last_read() const { return *mirror_; }

private:
    Buffer buffer_, staging_;
    StepScalars *scalars_, *mirror_;
    StepScalars staged_;
};

}  // namespace coeus
