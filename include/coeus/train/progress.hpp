// SPDX-License-Identifier: Apache-2.0
// Progress: how far a run is. Checkpoints, guards and metrics each store a part of it.
#pragma once

#include "coeus/guards/guards.hpp"
#include "coeus/io/checkpoint.hpp"
#include "coeus/metrics/metrics.hpp"

#include <cstdint>

namespace coeus {

struct Progress {
    int64_t step = 0;         ///< optimizer steps taken
    int64_t sample = 0;       ///< number of the next sample of the data stream
    int64_t tokens_seen = 0;  ///< over all ranks and restarts
    /// Values of `step` at which the learning-rate schedule and the optimizer's bias correction began. 0
    /// unless checkpoint.exclude_from_loading reset a part; below 0 if it reset only `step`.
    int64_t schedule_begins = 0, optimizer_begins = 0;
    bool validation_is_left = false;  ///< a stop interrupted the validation after the last step

    /// Progress of the run that wrote a checkpoint.
    static Progress of(const TrainRecord& train);
    /// The attributes of a checkpoint that are part of Progress; the caller adds the others.
    TrainRecord record() const;

    /// True if nothing is left to do in a run of `steps` steps.
    bool is_finished(int64_t steps) const { return step >= steps && !validation_is_left; }

    /// For the guards.
    RunPlace place() const { return {step, sample, tokens_seen}; }
    /// After a guard's decision: the run continues at `place`. The beginnings of the schedule and the
    /// optimizer do not change.
    void move_to(const RunPlace& place);

    /// For metrics.jsonl; `events`: number of the guards' events.
    MetricsFile::Past past(int64_t events) const { return {step, events, validation_is_left}; }
    /// Step, tokens and epoch of a logged step; `windows`: number of windows in one epoch of the training
    /// data.
    StepMetrics metrics(int64_t windows) const;

    /// The number of the next step as the optimizer counts: 1 for its first.
    int64_t next_optimizer_step() const { return step + 1 - optimizer_begins; }
    /// Steps that the learning-rate schedule has seen.
    int64_t schedule_step() const { return step - schedule_begins; }
};

}  // namespace coeus
