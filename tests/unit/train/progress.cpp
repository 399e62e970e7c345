// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/progress.hpp"

#include "support/catch.hpp"

using namespace coeus;

TEST_CASE("progress: it is restored from a checkpoint's record") {
    const Progress progress = {.step = 12,
                               .sample = 50,
                               .tokens_seen = 800,
                               .schedule_begins = 4,
                               .optimizer_begins = 9,
                               .validation_is_left = true};
    const TrainRecord record = progress.record();
    CHECK(record.step == 12);
    CHECK(record.sample == 50);
    CHECK(record.tokens_seen == 800);
    CHECK(record.schedule_step == 8);
    CHECK(record.optimizer_step == 3);
    CHECK(record.validation_is_left);

    const Progress again = Progress::of(record);
    CHECK(again.step == 12);
    CHECK(again.sample == 50);
    CHECK(again.tokens_seen == 800);
    CHECK(again.schedule_begins == 4);
    CHECK(again.optimizer_begins == 9);
    CHECK(again.validation_is_left);
}

TEST_CASE("progress: in a record without steps of schedule and optimizer, these began at step 0") {
    const Progress progress = Progress::of(TrainRecord{.step = 7});
    CHECK(progress.schedule_begins == 0);
    CHECK(progress.optimizer_begins == 0);
    CHECK(progress.schedule_step() == 7);
    CHECK(progress.next_optimizer_step() == 8);
}

TEST_CASE("progress: the count of steps may start again while schedule and optimizer continue") {
    const Progress progress = Progress::of(TrainRecord{.step = 0, .schedule_step = 10, .optimizer_step = 6});
    CHECK(progress.schedule_begins == -10);
    CHECK(progress.schedule_step() == 10);
    CHECK(progress.next_optimizer_step() == 7);
}

TEST_CASE("progress: guards see the position, and can change it") {
    Progress progress = {.step = 12, .sample = 50, .tokens_seen = 800, .schedule_begins = 4};
    const RunPlace place = progress.place();
    CHECK(place.step == 12);
    CHECK(place.sample == 50);
    CHECK(place.tokens_seen == 800);
    progress.move_to({.step = 10, .sample = 60, .tokens_seen = 700});
    CHECK(progress.step == 10);
    CHECK(progress.sample == 60);
    CHECK(progress.tokens_seen == 700);
    CHECK(progress.schedule_begins == 4);
}

TEST_CASE("progress: the values for metrics") {
    const Progress progress = {.step = 12, .sample = 50, .tokens_seen = 800, .validation_is_left = true};
    const MetricsFile::Past past = progress.past(3);
    CHECK(past.step == 12);
    CHECK(past.events == 3);
    CHECK(past.validation_is_left);
    const StepMetrics metrics = progress.metrics(20);
    CHECK(metrics.step == 12);
    CHECK(metrics.tokens_seen == 800);
    CHECK(metrics.epoch == 2.5);
}
