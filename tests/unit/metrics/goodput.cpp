// SPDX-License-Identifier: Apache-2.0
// Sums over starts, repeated steps, and the file after a run was killed.
#include "coeus/metrics/goodput.hpp"

#include "coeus/base/error.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/support.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

double sum_of(const Goodput& goodput) {
    double sum = 0;
    for (const Goodput::Part& part : goodput.parts()) sum += part.seconds;
    return sum;
}

}  // namespace

TEST_CASE("goodput: one start") {
    const Goodput goodput = goodput_of({{.start = 1000, .time = 1005, .start_up = 5},
                                        {.start = 1000,
                                         .time = 1100,
                                         .step = 10,
                                         .start_up = 5,
                                         .steps = 80,
                                         .data = 8,
                                         .validation = 4,
                                         .saving = 6}});
    CHECK(goodput.starts == 1);
    CHECK(goodput.steps == 10);
    CHECK(goodput.wall == 100);
    CHECK(goodput.useful == 72);
    CHECK(goodput.other() == 5);
    CHECK(goodput.repeated == 0);
    CHECK(
        goodput_text(goodput) ==
        "Goodput 72.0 % (1 m 40 s): waiting for data 8.0 %, validation 4.0 %, saving 6.0 %, start-up 5.0 %, "
        "other 5.0 %");
    CHECK(goodput_of({}).starts == 0);
    CHECK(goodput_of({}).percent(1) == 0);
}

TEST_CASE("goodput: steps after the last checkpoint are repeated") {
    // killed some time after step 10, resumed from step 8; steps take 2 s, later 3 s
    const Goodput goodput =
        goodput_of({{.start = 0, .time = 1, .start_up = 1},
                    {.start = 0, .time = 9, .step = 4, .start_up = 1, .steps = 8},
                    {.start = 0, .time = 21, .step = 10, .start_up = 1, .steps = 20, .data = 2},
                    {.start = 50, .time = 52, .step = 8, .start_up = 2},
                    {.start = 50, .time = 64, .step = 12, .start_up = 2, .steps = 12}});
    CHECK(goodput.starts == 2);
    CHECK(goodput.wall == 64);
    CHECK(goodput.repeated_steps == 2);
    CHECK(close(goodput.repeated, 4, 1e-12));
    CHECK(close(goodput.data, 2.0 * 4 / 6, 1e-12));  // two thirds of the time of steps 5 to 8
    CHECK(close(goodput.useful + goodput.data, 16 + 12, 1e-12));
    CHECK(goodput.between == 29);
    CHECK(goodput.start_up == 3);
    CHECK(close(sum_of(goodput), goodput.wall, 1e-12));
    CHECK_THAT(goodput_text(goodput), Contains(" in 2 starts): ") && Contains("repeated steps 6.2 % (2)"));
}

TEST_CASE("goodput: a start from an older checkpoint discards steps of all earlier starts") {
    const Goodput goodput = goodput_of({{.start = 0, .time = 0},
                                        {.start = 0, .time = 10, .step = 10, .steps = 10},
                                        {.start = 20, .time = 20, .step = 10},
                                        {.start = 20, .time = 30, .step = 20, .steps = 10},
                                        {.start = 40, .time = 40, .step = 5},
                                        {.start = 40, .time = 41, .step = 6, .steps = 1}});
    CHECK(goodput.repeated_steps == 15);
    CHECK(close(goodput.repeated, 15, 1e-12));
    CHECK(close(goodput.useful, 6, 1e-12));
    CHECK(goodput.between == 20);
}

TEST_CASE("goodput: an extension of a complete run and the time in a queue do not count as lost") {
    const StartTimes first = {.start = 0, .time = 10, .step = 10, .steps = 10};
    StartTimes complete = first;
    complete.complete = true;
    const StartTimes next_day = {.start = 86410, .time = 86420, .step = 20, .steps = 10};
    const Goodput extended = goodput_of({complete, next_day});
    CHECK(extended.wall == 20);
    CHECK(extended.useful == 20);
    CHECK(extended.between == 0);
    CHECK(extended.idle == 86400);
    CHECK_THAT(goodput_text(extended), Contains("Goodput 100.0 % (20 s in 2 starts)") &&
                                           Contains("between a complete run and its extension"));
    // the same pause after a crash is a loss
    CHECK(goodput_of({first, next_day}).between == 86400);

    StartTimes requeued = next_day;
    requeued.job_start = 86400;  // 10 s before the process
    const Goodput waited = goodput_of({first, requeued});
    CHECK(waited.queued == 86390);
    CHECK(waited.between == 10);
    CHECK(waited.wall == 30);
    CHECK(close(sum_of(waited), waited.wall, 1e-12));
    CHECK_THAT(goodput_text(waited), Contains(" in the queue between starts"));
    // a job that ran before, as in an interactive allocation
    requeued.job_start = 5;
    CHECK(goodput_of({first, requeued}).queued == 0);
}

TEST_CASE("goodput: the file says whether the run was complete, and when its job began") {
    const TemporaryFolder folder;
    const auto file = folder / "goodput.jsonl";
    const EnvironmentVariable job("SLURM_JOB_START_TIME", "1700000000");
    GoodputClock(file, 0, 3).finish(4);
    GoodputClock(file, 0, 4).finish(5, true);
    const std::vector<StartTimes> lines = read_start_times(file);
    REQUIRE(lines.size() == 4);
    CHECK_FALSE(lines[1].complete);
    CHECK(lines[3].complete);
    CHECK(lines[3].job_start == 1700000000);
}

TEST_CASE("goodput: steps that guards refused or reverted do not count") {
    const TemporaryFolder folder;
    const auto file = folder / "goodput.jsonl";
    GoodputClock clock(file, 0, 0);
    for (int i = 0; i < 4; ++i) clock.add_step(2, 0.5);
    clock.take_back(1);
    clock.take_back(9);  // limited to the steps of this start
    for (int i = 0; i < 2; ++i) clock.add_step(2, 0.5);
    clock.finish(2);
    const StartTimes last = read_start_times(file).back();
    CHECK(close(last.steps, 4, 1e-12));
    CHECK(close(last.data, 1, 1e-12));
    CHECK(close(last.taken_back, 8, 1e-12));
    CHECK(last.steps_taken_back == 4);
    const Goodput goodput = goodput_of({last});
    CHECK(close(goodput.useful, 3, 1e-12));
    CHECK(close(goodput.repeated, 8, 1e-12));
    CHECK(goodput.repeated_steps == 4);
}

TEST_CASE("goodput: a killed run's file is read, and the next start appends to it") {
    const TemporaryFolder folder;
    const auto file = folder / "goodput.jsonl";
    {
        GoodputClock clock(file, 2, 0);
        clock.add_step(3, 1);
        clock.during(&StartTimes::saving, [] {});
        clock.write(1);  // too soon after the first
        CHECK(lines_of(read_file(file)).size() == 1);
        clock.ask_for_line();
        clock.write(1);
        CHECK(lines_of(read_file(file)).size() == 2);
    }
    write_file(file, read_file(file) + "{\"start\":17");
    GoodputClock clock(file, 1, 1);
    const std::string text = clock.finish(1);
    CHECK_THAT(text, Contains(" in 2 starts"));
    const std::vector<StartTimes> lines = read_start_times(file);
    REQUIRE(lines.size() == 4);
    CHECK(lines[1].steps == 3);
    CHECK(lines[1].data == 1);
    CHECK(lines[1].start == lines[0].start);
    CHECK(lines[2].start != lines[0].start);
    CHECK(lines[2].step == 1);
    CHECK(lines[0].time - lines[0].start >= 2);
    // the seconds of both starts, and those of a third one
    const double earlier = lines[1].time - lines[0].start + lines[3].time - lines[2].start;
    CHECK(earlier >= 3);
    const double third = RunClock(file, 5).seconds() - earlier,
                 only = RunClock(folder / "absent", 5).seconds();
    CHECK((third >= 5 && third < only + 1));
    CHECK(only >= 5);
    CHECK(read_start_times(folder / "absent").empty());
    CHECK(GoodputClock("", 1, 0).finish(5).empty());
    CHECK_THROWS_WITH(GoodputClock(folder / "no/such", 1, 0), Contains("cannot write"));
}
