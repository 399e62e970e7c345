// SPDX-License-Identifier: Apache-2.0
// The guard against loss spikes: a planted bad sample is skipped or rewound, and a run resumed from a
// checkpoint before it makes the same decisions with the same bits.
#include "coeus/base/random.hpp"
#include "coeus/file/json.hpp"
#include "coeus/io/checkpoint.hpp"
#include "coeus/metrics/load_history.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

constexpr int64_t window_tokens = 17, batch = 8;

// Each token determines the next one, except in the samples [first, last) of a run that does not shuffle:
// there, tokens are random.
fs::path write_data(const TemporaryFolder& folder, int64_t first, int64_t last) {
    const RandomStream random(11, "noise");
    std::vector<uint16_t> tokens = {1};
    while (int64_t(tokens.size()) < 400 * window_tokens) {
        const auto i = int64_t(tokens.size()), sample = i / window_tokens;
        const bool noise = sample >= first && sample < last;
        tokens.push_back(noise ? uint16_t(random.uniform(uint64_t(i)) * 64)
                               : uint16_t((tokens.back() + 1) % 8));
    }
    write_token_file(folder / "tokens.h5", {.tokens = tokens, .documents = {0, 400 * window_tokens}});
    return folder / "tokens.h5";
}

// The guard's window is full after 4 steps.
const Arguments guarded = {"--checkpoint.enable",
                           "--checkpoint.interval=4",
                           "--training.global_batch_size=8",
                           "--training.local_batch_size=2",
                           "--guards.spike_window=4",
                           "--guards.snapshot_interval=5",
                           "--lr_scheduler.total_steps=20",
                           "--checkpoint.keep_latest_k=0",
                           "--optimizer.lr=2e-2",
                           "--guards.spike_z_score=4",
                           steps(20)};

std::string action(const char* what) {
    return std::string("--guards.loss_spike=") + what;
}

// Compares the lines of metrics.jsonl and the checkpoints.
void check_same(const fs::path& a, const fs::path& b, int64_t last) {
    const MetricLines in_a = read_metrics(a), in_b = read_metrics(b);
    REQUIRE(in_a.steps.size() == in_b.steps.size());
    for (size_t i = 0; i < in_a.steps.size(); ++i) {
        CAPTURE(i);
        CHECK(in_a.steps[i].step == in_b.steps[i].step);
        CHECK(in_a.steps[i].loss == in_b.steps[i].loss);
        CHECK(in_a.steps[i].grad_norm == in_b.steps[i].grad_norm);
        CHECK(in_a.steps[i].tokens_seen == in_b.steps[i].tokens_seen);
        CHECK(in_a.steps[i].epoch == in_b.steps[i].epoch);
    }
    REQUIRE(in_a.events.size() == in_b.events.size());
    for (size_t i = 0; i < in_a.events.size(); ++i) CHECK(in_a.events[i].text == in_b.events[i].text);
    CHECK(differing_arrays(a / checkpoint_of(last), b / checkpoint_of(last)).empty());
}

}  // namespace

TEST_CASE(
    "program: a bad sample is skipped or rewound, and a run resumed from an earlier checkpoint decides the "
    "same") {
    const TemporaryFolder folder;
    const fs::path data = write_data(folder, 14 * batch, 14 * batch + 2);  // 2 of the 8 samples of step 15
    train_tiny(folder / "off", data, guarded);
    CHECK(read_metrics(folder / "off").events.empty());
    CHECK(train_record(folder / "off", 20).guards == "");
    for (const char* what : {"skip", "rewind"}) {
        CAPTURE(what);
        const bool goes_back = std::string(what) == "rewind";
        const fs::path whole = folder / (std::string(what) + "-whole"), parts = folder / what;
        const Outcome run = train_tiny(whole, data, guarded + Arguments{action(what)}, 2);
        INFO(run.output);
        // there are snapshots of steps 0, 4, 5, 8, 10, 12, ...
        const int64_t first = goes_back ? 12 * batch : 14 * batch, from = goes_back ? 12 : 14;
        CHECK_THAT(run.output,
                   Contains("step 15: loss ") &&
                       Contains(fmt::format("samples {} to {} are skipped", first, 15 * batch - 1)));
        const MetricLines lines = read_metrics(whole), unguarded = read_metrics(folder / "off");
        REQUIRE(lines.events.size() == 1);
        CHECK(lines.events[0].event == "loss_spike");
        CHECK(lines.events[0].action == what);
        CHECK(lines.events[0].step == from + 1);
        // every step once; from the spike on, with the samples that follow the skipped ones
        REQUIRE(lines.steps.size() == 20);
        for (int64_t i = 0; i < 20; ++i) {
            CHECK(lines.steps[size_t(i)].step == i + 1);
            CHECK(lines.steps[size_t(i)].tokens_seen == (i + 1) * batch * 16);
        }
        CHECK(unguarded.steps[14].loss > 1.5 * unguarded.steps[13].loss);
        CHECK(lines.steps[14].loss < lines.steps[12].loss);
        const TrainRecord end = train_record(whole, 20);
        CHECK(end.sample == 20 * batch + (15 * batch - first));
        const JsonDocument record = JsonDocument::parse(end.guards, "guards");
        CHECK(record.root().integer("samples_passed_over") == 15 * batch - first);
        CHECK(record.root().integer("skips") == (goes_back ? 0 : 1));
        CHECK(record.root().integer("rewinds") == (goes_back ? 1 : 0));
        CHECK(record.root()["loss"].size() == 4);
        // as if the run had been killed before the spike, and after it
        train_tiny(parts, data, guarded + Arguments{action(what), steps(12)}, 2);
        train_tiny(parts, data, guarded + Arguments{action(what), steps(16)}, 2);
        const Outcome last = train_tiny(parts, data, guarded + Arguments{action(what)}, 2);
        CHECK(count_of("the global batch size changes", last.output) == 0);
        check_same(whole, parts, 20);
    }
}

TEST_CASE("program: a guard's decision is kept if a stop comes before the next checkpoint") {
    const TemporaryFolder folder;
    const fs::path data = write_data(folder, 14 * batch, 14 * batch + 2);
    const Arguments skipping = guarded + Arguments{action("skip")};
    train_tiny(folder / "whole", data, skipping, 2);
    // a signal at the begin of the step that replaces the skipped one
    const Outcome stopped =
        run_coeus(tiny_run(folder / "parts", data, skipping), 2,
                  {{"COEUS_FAULT", "signal rank=0 step=15 operation=wait_for_the_next_batch after=1"}});
    INFO(stopped.output);
    CHECK(stopped.exit_code == 75);
    CHECK_THAT(stopped.output, Contains("are skipped") && Contains("Stopped at step 14 of 20"));
    train_tiny(folder / "parts", data, skipping, 2);
    check_same(folder / "whole", folder / "parts", 20);
}

TEST_CASE("program: after a rewind, the loads of experts have each step once") {
    const TemporaryFolder folder;
    const fs::path data = write_data(folder, 14 * batch, 14 * batch + 2), run = folder / "run";
    train_tiny(run, data, guarded + tiny_experts + Arguments{action("rewind"), "--guards.spike_z_score=8"});
    const MetricLines lines = read_metrics(run);
    REQUIRE(lines.events.size() == 1);
    CHECK(lines.events[0].step == 13);
    CHECK(count_of("\n", read_file(run / "expert_loads.jsonl")) == 20);
    CHECK(read_load_history(run / "expert_loads.jsonl").at(0).size() == 20);
}

TEST_CASE("program: a spike is skipped in the same way on other ranks") {
    const TemporaryFolder folder;
    const fs::path data = write_data(folder, 14 * batch, 14 * batch + 2);
    const Arguments more = guarded + Arguments{action("rewind"), "--training.dtype=float64"};
    train_tiny(folder / "one", data, more + Arguments{"--training.local_batch_size=8"});
    train_tiny(folder / "moving", data, more + Arguments{steps(12)}, 2);
    const Outcome last = train_tiny(
        folder / "moving", data,
        more + Arguments{"--parallelism.data_parallel_replicate_degree=2",
                         "--parallelism.tensor_parallel_degree=2", "--guards.compare_replicas_interval=3"},
        4);
    CHECK_THAT(last.output, Contains("norms over dp_replicate x tp"));
    const MetricLines one = read_metrics(folder / "one"), moving = read_metrics(folder / "moving");
    REQUIRE(one.steps.size() == 20);
    REQUIRE(moving.steps.size() == 20);
    REQUIRE(one.events.size() == 1);
    REQUIRE(moving.events.size() == 1);
    CHECK(moving.events[0].step == one.events[0].step);
    for (size_t i = 0; i < 20; ++i) {
        CHECK(relatively_close(moving.steps[i].loss, one.steps[i].loss, 1e-10));
        CHECK(moving.steps[i].epoch == one.steps[i].epoch);
    }
    const TrainRecord a = train_record(folder / "one", 20), b = train_record(folder / "moving", 20);
    CHECK(a.sample == b.sample);
}

TEST_CASE("program: repeated spikes end the run") {
    const TemporaryFolder folder;
    const fs::path data = write_data(folder, 12 * batch, 400);
    for (const bool goes_back : {false, true}) {
        CAPTURE(goes_back);
        const fs::path out = folder / (goes_back ? "rewind" : "skip");
        const Outcome run = run_coeus(
            tiny_run(out, data,
                     guarded + Arguments{action(goes_back ? "rewind" : "skip"), "--guards.spike_patience=2"}),
            2);
        INFO(run.output);
        CHECK(run.exit_code == 4);
        CHECK_THAT(run.output, Contains(goes_back ? "It came after 2 rewinds to the same snapshot"
                                                  : "It came after 2 updates skipped in a row"));
        CHECK_THAT(run.output, Contains("The last good checkpoint is " + (out / checkpoint_of(12)).string()));
        CHECK(read_metrics(out).steps.size() == 12);
        CHECK(read_metrics(out).events.size() == 2);
    }
}

TEST_CASE("program: a loss that is not finite ends a guarded run too") {
    const TemporaryFolder folder;
    const fs::path data = write_data(folder, 0, 0);
    for (const char* what : {"skip", "rewind"}) {
        const Outcome run = run_coeus(tiny_run(folder / what, data,
                                               guarded + Arguments{action(what), "--optimizer.lr=1e38",
                                                                   "--lr_scheduler.warmup_steps=9"}),
                                      2);
        INFO(run.output);
        CHECK(run.exit_code == 4);
        CHECK_THAT(run.output,
                   Contains("the gradient norm is ") && Contains("; the optimizer step was not taken"));
        CHECK_THAT(run.output, !Contains("is a spike"));
    }
}

TEST_CASE("program: the memory plan has the snapshot for rewinding") {
    const auto plan = [](const Arguments& more) {
        return run_coeus(tiny_run("nowhere", "x.h5", more + Arguments{"--dry_run"})).output;
    };
    CHECK_THAT(plan({action("rewind")}), Contains("in-memory snapshot"));
    CHECK_THAT(plan({action("skip")}), !Contains("in-memory snapshot"));
    CHECK_THAT(plan({"--guards.compare_replicas_interval=2", "--guards.on_mismatch=rewind"}),
               Contains("in-memory snapshot"));
    CHECK_THAT(plan({"--guards.on_mismatch=rewind"}),
               Contains("guards.on_mismatch = \"rewind\": replicas are not compared with "
                        "guards.compare_replicas_interval = 0"));
}

TEST_CASE("program: replicas are compared if there are any") {
    const TemporaryFolder folder;
    const fs::path data = write_data(folder, 0, 0);
    const Arguments comparing = {"--guards.compare_replicas_interval=2", "--training.local_batch_size=2",
                                 steps(4)};
    const Outcome sharded = train_tiny(folder / "fsdp", data, comparing, 2);
    CHECK(count_of("no two ranks of this mesh hold the same weights, so there is nothing to compare",
                   sharded.output) == 1);
    const Outcome replicated =
        train_tiny(folder / "ddp", data,
                   comparing + Arguments{"--parallelism.data_parallel_replicate_degree=2",
                                         "--guards.on_mismatch=rewind"},
                   2);
    CHECK(count_of("Replicas are compared: matrices over dp_replicate, norms over dp_replicate",
                   replicated.output) == 1);
    CHECK(read_metrics(folder / "ddp").events.empty());
}
