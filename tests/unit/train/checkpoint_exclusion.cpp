// SPDX-License-Identifier: Apache-2.0
#include "../../../src/train/checkpoint_exclusion.hpp"

#include "support/catch.hpp"

using namespace coeus;

namespace {

const TrainRecord record{.step = 10, .tokens_seen = 640, .seed = 3, .sample = 40};

}  // namespace

TEST_CASE("exclusion: each part can be reset separately") {
    const TrainRecord same = reset_parts(record, {});
    CHECK(same.step == 10);
    CHECK(same.tokens_seen == 640);
    CHECK(same.sample == 40);
    CHECK(same.schedule_step == 10);
    CHECK(same.optimizer_step == 10);

    const TrainRecord schedule = reset_parts(record, {"lr_scheduler"});
    CHECK(schedule.step == 10);
    CHECK(schedule.schedule_step == 0);
    CHECK(schedule.optimizer_step == 10);
    CHECK(reset_parts(record, {"optimizer", "lr_scheduler"}).optimizer_step == 0);

    const TrainRecord data = reset_parts(record, {"dataloader"});
    CHECK(data.sample == 0);
    CHECK(data.step == 10);

    const TrainRecord counts = reset_parts(record, {"train_state"});
    CHECK(counts.step == 0);
    CHECK(counts.tokens_seen == 0);
    CHECK(counts.sample == 40);
    CHECK(counts.schedule_step == 10);
    CHECK(counts.optimizer_step == 10);
    CHECK(counts.seed == 3);
}

TEST_CASE("exclusion: a part that was reset earlier continues") {
    TrainRecord later = reset_parts(record, {"lr_scheduler"});
    later.step += 2;
    *later.schedule_step += 2;
    *later.optimizer_step += 2;
    const TrainRecord on = reset_parts(later, {"train_state"});
    CHECK(on.step == 0);
    CHECK(on.schedule_step == 2);
    CHECK(on.optimizer_step == 12);
}

TEST_CASE("exclusion: parts that the checkpoint's run has already reset are not reset again") {
    const std::string deck = "[checkpoint]\nexclude_from_loading = [\"lr_scheduler\", \"dataloader\"]\n";
    CHECK(still_to_exclude({"lr_scheduler", "train_state"}, deck) == Words{"train_state"});
    CHECK(still_to_exclude({"lr_scheduler"}, deck).empty());
    CHECK(still_to_exclude({"lr_scheduler"}, "[checkpoint]\nenable = true\n") == Words{"lr_scheduler"});
    CHECK(still_to_exclude({"lr_scheduler"}, "") == Words{"lr_scheduler"});
    CHECK(still_to_exclude({}, deck).empty());
    CHECK(describe_exclusion({}, {}).empty());
    CHECK(describe_exclusion({"lr_scheduler", "optimizer"}, {"lr_scheduler", "optimizer"}) ==
          "checkpoint.exclude_from_loading: not loaded but reset: the learning-rate schedule, the "
          "optimizer's moments and bias correction");
    CHECK(describe_exclusion({"dataloader", "train_state"}, {"train_state"}) ==
          "checkpoint.exclude_from_loading: not loaded but reset: the count of steps and tokens; reset by "
          "the run that wrote this checkpoint, and loaded now: the data");
}
