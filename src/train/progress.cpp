// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/progress.hpp"

namespace coeus {

Progress Progress::of(const TrainRecord& train) {
    return {.step = train.step,
            .sample = train.sample,
            .tokens_seen = train.tokens_seen,
            .schedule_begins = train.step - train.schedule_step.value_or(train.step),
            .optimizer_begins = train.step - train.optimizer_step.value_or(train.step),
            .validation_is_left = train.validation_is_left};
}

TrainRecord Progress::record() const {
    TrainRecord train;
    train.step = step;
    train.tokens_seen = tokens_seen;
    train.sample = sample;
    train.schedule_step = schedule_step();
    train.optimizer_step = step - optimizer_begins;
    train.validation_is_left = validation_is_left;
    return train;
}

void Progress::move_to(const RunPlace& place) {
    step = place.step;
    sample = place.sample;
    tokens_seen = place.tokens_seen;
}

StepMetrics Progress::metrics(int64_t windows) const {
    StepMetrics m;
    m.step = step;
    m.tokens_seen = tokens_seen;
    m.epoch = double(sample) / double(windows);
    return m;
}

}  // namespace coeus
