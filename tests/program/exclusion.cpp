// SPDX-License-Identifier: Apache-2.0
// checkpoint.exclude_from_loading as a user meets it: the excluded parts are reset, once, and the files say
// so.
#include "coeus/io/checkpoint.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

// 4 + 6 steps, with 3 steps of warm-up
const Arguments saving_every_second = {
    "--checkpoint.enable",           "--checkpoint.interval=2",        "--checkpoint.keep_latest_k=0",
    "--lr_scheduler.warmup_steps=3", "--training.global_batch_size=8", "--training.dtype=float64",
    "--training.local_batch_size=2"};
constexpr double peak = 1e-2;

fs::path write_160_windows(const TemporaryFolder& folder) {
    write_token_file(folder / "tokens.h5",
                     {.tokens = learnable_tokens(160 * 17), .documents = {0, 600, 160 * 17}});
    return folder / "tokens.h5";
}

std::string without(const std::string& parts) {
    return "--checkpoint.exclude_from_loading=" + parts;
}

}  // namespace

TEST_CASE("program: a schedule that is not loaded starts again, once, and ends with the run") {
    const TemporaryFolder folder;
    const fs::path data = write_160_windows(folder), run = folder / "run";
    train_tiny(run, data, saving_every_second + Arguments{steps(4)});
    CHECK_FALSE(train_record(run, 4).schedule_step.has_value());
    const Arguments from_the_start = saving_every_second + Arguments{without("lr_scheduler"), steps(10)};
    // a job that was requeued twice, each time after 2 of its steps, with other numbers of ranks
    const Outcome first = train_tiny(
        run, data,
        saving_every_second + Arguments{without("lr_scheduler"), steps(10), "--lr_scheduler.total_steps=6"},
        2);
    CHECK_THAT(first.output,
               Contains("checkpoint.exclude_from_loading: not loaded but reset: the learning-rate schedule"));
    const MetricLines whole = read_metrics(run);
    REQUIRE(whole.steps.size() == 10);
    CHECK(relatively_close(whole.steps[4].lr, peak / 3, 1e-12));
    CHECK(relatively_close(whole.steps[5].lr, peak * 2 / 3, 1e-12));
    CHECK(relatively_close(whole.steps[6].lr, peak, 1e-12));
    CHECK(whole.steps[9].lr < peak);
    CHECK(train_record(run, 6).schedule_step == 2);
    CHECK_FALSE(train_record(run, 6).optimizer_step.has_value());
    CHECK(train_record(run, 6).sample == 48);

    // without a length of its own, the schedule spans the remaining steps and is the same
    for (int64_t step : {6, 8, 10}) fs::remove(run / checkpoint_of(step));
    train_tiny(run, data, from_the_start, 1);
    const MetricLines left = read_metrics(run);
    REQUIRE(left.steps.size() == 10);
    for (size_t i = 4; i < 10; ++i) {
        CHECK(relatively_close(left.steps[i].lr, whole.steps[i].lr, 1e-12));
        CHECK(relatively_close(left.steps[i].loss, whole.steps[i].loss, 1e-12));
    }
    // requeued after step 6, and after step 8
    for (int64_t until : {6, 8}) {
        for (int64_t step = until + 2; step <= 10; step += 2) fs::remove(run / checkpoint_of(step));
        const Outcome again = train_tiny(run, data, from_the_start, until == 6 ? 2 : 1);
        CHECK_THAT(
            again.output,
            Contains(
                "reset by the run that wrote this checkpoint, and loaded now: the learning-rate schedule"));
        const MetricLines resumed = read_metrics(run);
        REQUIRE(resumed.steps.size() == 10);
        for (size_t i = 0; i < 10; ++i) {
            CHECK(resumed.steps[i].lr == left.steps[i].lr);
            CHECK(relatively_close(resumed.steps[i].loss, left.steps[i].loss, 1e-12));
        }
    }
}

TEST_CASE("program: an optimizer that is not loaded is a new one for the old weights") {
    const TemporaryFolder folder;
    const fs::path data = write_160_windows(folder), run = folder / "run";
    train_tiny(run, data, saving_every_second + Arguments{steps(4), "--checkpoint.export_dtype=float32"});
    // loading only the weights in a new folder does the same: new optimizer, schedule, data position and
    // counts
    const std::string from = "--checkpoint.initial_load_path=" + (run / checkpoint_of(4)).string();
    train_tiny(folder / "weights", data, saving_every_second + Arguments{steps(3), from}, 2);
    const std::string all = without("optimizer,lr_scheduler,dataloader,train_state");
    const Arguments whole = {from, "--checkpoint.initial_load_model_only=false", all};
    train_tiny(folder / "excluded", data, saving_every_second + Arguments{steps(3)} + whole, 2);
    // and one that keeps only the counts, with which the optimizer's first step is not step 1 of the run
    train_tiny(folder / "counted", data,
               saving_every_second + Arguments{from, "--checkpoint.initial_load_model_only=false", steps(7),
                                               without("optimizer,lr_scheduler,dataloader")},
               2);
    // and so does a start in the run's own folder
    const Outcome own = train_tiny(run, data, saving_every_second + Arguments{steps(3), all}, 2);
    CHECK_THAT(own.output, Contains("step 0, 0 tokens seen") &&
                               Contains("reset: the optimizer's moments and bias correction, the "
                                        "learning-rate schedule, the data, the count of steps and tokens") &&
                               Contains("its metrics were moved to"));
    const MetricLines new_run = read_metrics(folder / "weights"), counted = read_metrics(folder / "counted");
    REQUIRE(counted.steps.size() == 3);
    for (size_t i = 0; i < 3; ++i) {
        CHECK(counted.steps[i].step == 5 + int64_t(i));
        CHECK(counted.steps[i].loss == new_run.steps[i].loss);
        CHECK(counted.steps[i].lr == new_run.steps[i].lr);
    }
    CHECK(differing_arrays(folder / "counted" / checkpoint_of(7), folder / "weights" / checkpoint_of(3)) ==
          std::vector<std::string>{});
    for (const char* other : {"excluded", "run"}) {
        CAPTURE(other);
        const MetricLines expected = read_metrics(folder / "weights"), lines = read_metrics(folder / other);
        REQUIRE(lines.steps.size() == 3);
        for (size_t i = 0; i < 3; ++i) {
            CHECK(lines.steps[i].loss == expected.steps[i].loss);
            CHECK(lines.steps[i].lr == expected.steps[i].lr);
            CHECK(lines.steps[i].tokens_seen == expected.steps[i].tokens_seen);
        }
        CHECK(differing_arrays(folder / other / checkpoint_of(3), folder / "weights" / checkpoint_of(3)) ==
              std::vector<std::string>{});
    }
}

TEST_CASE("program: data and counts that are not loaded start at 0 while the rest continues") {
    const TemporaryFolder folder;
    const fs::path data = write_160_windows(folder), run = folder / "run";
    const Arguments constant = {"--lr_scheduler.decay_ratio=0"};
    train_tiny(run, data, saving_every_second + constant + Arguments{steps(4)});
    SECTION("data") {
        train_tiny(run, data, saving_every_second + constant + Arguments{steps(6), without("dataloader")});
        CHECK(train_record(run, 6).sample == 16);
        CHECK(train_record(run, 6).step == 6);
        const Outcome again = train_tiny(
            run, data, saving_every_second + constant + Arguments{steps(8), without("dataloader")});
        CHECK_THAT(again.output,
                   Contains("and loaded now: the data") && !Contains("the global batch size changes"));
        CHECK(train_record(run, 8).sample == 32);
    }
    SECTION("counts, with load_step") {
        const Arguments counts = {without("train_state"), "--checkpoint.load_step=2"};
        train_tiny(run, data, saving_every_second + constant + counts + Arguments{steps(2)}, 2);
        const TrainRecord record = train_record(run, 2);
        CHECK(record.step == 2);
        CHECK(record.tokens_seen == 2 * 8 * 16);
        CHECK(record.sample == 32);
        CHECK(record.schedule_step == 4);
        CHECK(record.optimizer_step == 4);
        // the schedule is past its warm-up
        CHECK(read_metrics(run).steps[0].lr == peak);
    }
    SECTION("with another seed, the data start again in another order") {
        const Arguments seed = {"--debug.seed=7", steps(6)};
        CHECK(run_coeus(tiny_run(run, data, saving_every_second + constant + seed)).exit_code == 2);
        train_tiny(run, data, saving_every_second + constant + seed + Arguments{without("dataloader")});
        CHECK(train_record(run, 6).seed == 7);
    }
}
