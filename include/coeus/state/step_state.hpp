// SPDX-License-Identifier: Apache-2.0
// StepState: owns the scalars of a step in the memory of a device (kernels/step_scalars.hpp), and a copy of
// them that the host reads and writes; on the host it is the same.
#pragma once

#include "coeus/device/exec.hpp"
#include "coeus/kernels/step_scalars.hpp"

#include <optional>

namespace coeus {

class StepState {
public:
    explicit StepState(const Device& device = host_device());

    /// For kernels alone: the host may not follow the reference where it is a GPU's.
    StepScalars& scalars() const { return *scalars_; }
    /// Puts all of them there, as work of the Exec.
    void write(Exec& exec, const StepScalars& scalars);
    /// As they are when all work of the Exec is done.
    const StepScalars& read(const Exec& exec) const;
    /// As they were when last read or written.
    const StepScalars& last_read() const { return *mirror_; }

private:
    Buffer buffer_, staging_;
    StepScalars *scalars_, *mirror_;
    std::optional<int64_t> written_;  // the mirror must stay until then
};

}  // namespace coeus
