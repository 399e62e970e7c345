// SPDX-License-Identifier: Apache-2.0
#include "coeus/state/step_state.hpp"

#include <new>

namespace coeus {

StepState::StepState(const Device& device)
    : buffer_(sizeof(StepScalars), "scalars of a step", device.memory()) {
    if (!device.is_host())
        staging_ = Buffer(sizeof(StepScalars), "copy of the scalars of a step", device.staging());
    mirror_ = new (device.is_host() ? buffer_.data() : staging_.data()) StepScalars;
    scalars_ = reinterpret_cast<StepScalars*>(buffer_.data());
    if (!device.is_host()) device.copy(scalars_, mirror_, sizeof(StepScalars));
}

void StepState::bring(Exec& exec) const {
    exec.queue->copy(scalars_, mirror_, sizeof(StepScalars));
}

const StepScalars& StepState::read(const Exec& exec) const {
    exec.queue->copy(mirror_, scalars_, sizeof(StepScalars));
    exec.queue->finish();
    return *mirror_;
}

}  // namespace coeus
