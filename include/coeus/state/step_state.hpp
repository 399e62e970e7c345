// SPDX-License-Identifier: Apache-2.0
// StepState: owns the scalars of a step in the backend's memory (kernels/step_scalars.hpp).
#pragma once

#include "coeus/device/memory.hpp"
#include "coeus/kernels/step_scalars.hpp"

#include <new>

namespace coeus {

class StepState {
public:
    StepState()
        : buffer_(sizeof(StepScalars), "scalars of a step"), scalars_(new (buffer_.data()) StepScalars) {}

    StepScalars& scalars() const { return *scalars_; }

private:
    Buffer buffer_;
    StepScalars* scalars_;
};

}  // namespace coeus
