// SPDX-License-Identifier: Apache-2.0
// Pipelines from the command line: every schedule gives the results of one rank, a run can change its
// division into stages, and a deck that does not fit gets a message.
#include "coeus/file/json.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/part.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

fs::path write_200_windows(const TemporaryFolder& folder) {
    const fs::path file = folder / "tokens.h5";
    write_token_file(file, {.tokens = learnable_tokens(200 * 17), .documents = {0, 7, 7, 100, 300, 3400}});
    return file;
}

// Each step has two local batches, in float64.
const Arguments common = {"--training.dtype=float64",
                          "--model.n_layers=4",
                          "--training.global_batch_size=8",
                          "--training.document_mask",
                          "--validation.enable",
                          "--validation.freq=2",
                          "--validation.steps=3",
                          steps(4),
                          "--lr_scheduler.total_steps=6"};

Arguments pipeline(int degree, const std::string& schedule) {
    return {fmt::format("--parallelism.pipeline_parallel_degree={}", degree),
            "--parallelism.pipeline_parallel_schedule=" + schedule};
}

void compare(const MetricLines& is, const MetricLines& should) {
    REQUIRE(is.steps.size() == should.steps.size());
    REQUIRE(is.validations.size() == should.validations.size());
    for (size_t i = 0; i < should.steps.size(); ++i) {
        CAPTURE(i);
        CHECK(relatively_close(is.steps[i].loss, should.steps[i].loss, 1e-11));
        CHECK(relatively_close(is.steps[i].loss_max, should.steps[i].loss_max, 1e-11));
        CHECK(relatively_close(is.steps[i].grad_norm, should.steps[i].grad_norm, 1e-9));
        CHECK(is.steps[i].tokens_seen == should.steps[i].tokens_seen);
    }
    for (size_t i = 0; i < should.validations.size(); ++i) {
        CHECK(relatively_close(is.validations[i].loss, should.validations[i].loss, 1e-11));
        CHECK(is.validations[i].tokens == should.validations[i].tokens);
    }
}

}  // namespace

TEST_CASE("every schedule gives the results of one rank") {
    const TemporaryFolder folder;
    const fs::path data = write_200_windows(folder);
    train_tiny(folder / "one", data, common);
    const MetricLines one = read_metrics(folder / "one");
    write_file(folder / "table.csv", "0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n");
    struct Case {
        std::string what;
        Arguments arguments;
        int ranks;
    };
    const Case cases[] = {
        {"1F1B", pipeline(2, "1f1b"), 2},
        {"GPipe", pipeline(2, "GPipe") + Arguments{"--parallelism.pipeline_parallel_microbatch_size=2"}, 2},
        {"Interleaved1F1B", pipeline(2, "Interleaved1F1B"), 2},
        {"LoopedBFS",
         pipeline(2, "LoopedBFS") + Arguments{"--parallelism.pipeline_parallel_layers_per_stage=1"}, 2},
        {"InterleavedZeroBubble", pipeline(2, "InterleavedZeroBubble"), 2},
        {"ZBVZeroBubble", pipeline(2, "ZBVZeroBubble"), 2},
        {"DualPipeV", pipeline(2, "DualPipeV"), 2},
        {"csv",
         pipeline(2, "PipelineScheduleMulti") +
             Arguments{"--parallelism.pipeline_parallel_schedule_csv=" + (folder / "table.csv").string()},
         2},
        {"modules",
         pipeline(2, "GPipe") + Arguments{"--parallelism.module_fqns_per_model_part=tok_embeddings,layers.0;"
                                          "layers.1,layers.2,layers.3,norm,output"},
         2},
        {"two dimensions",
         pipeline(2, "1F1B") +
             Arguments{"--parallelism.pipeline_parallel_microbatch_size=1", "--training.local_batch_size=4"},
         4},
    };
    // two of them: other tests of the short list train with every schedule
    Part part("schedules", 1, {.check_all = 1, .short_list = 5});
    for (const Case& c : cases) {
        if (!part.takes_next()) continue;
        CAPTURE(c.what);
        const Outcome run = train_tiny(folder / c.what, data, common + c.arguments, c.ranks);
        CHECK(count_of("Pipeline: ", run.output) == 1);
        CHECK(count_of("Totals of all pipeline ranks: ", run.output) == 1);
        MetricLines is = read_metrics(folder / c.what);
        if (c.ranks > 2)  // with two data ranks, their largest mean differs
            for (size_t i = 0; i < is.steps.size(); ++i) is.steps[i].loss_max = one.steps[i].loss_max;
        compare(is, one);
    }
}

TEST_CASE("a run resumes with other stages, also with a tied table") {
    const TemporaryFolder folder;
    const fs::path data = write_200_windows(folder);
    const Arguments more =
        common + Arguments{"--model.tied_embeddings", "--checkpoint.enable", "--checkpoint.interval=100"};
    train_tiny(folder / "one", data, more + Arguments{steps(6)});
    train_tiny(folder / "moving", data, more + pipeline(2, "1F1B") + Arguments{steps(2)}, 2);
    train_tiny(folder / "moving", data, more + Arguments{steps(3)}, 1);
    train_tiny(folder / "moving", data, more + pipeline(2, "Interleaved1F1B") + Arguments{steps(5)}, 2);
    train_tiny(folder / "moving", data,
               more + pipeline(2, "1F1B") + Arguments{"--parallelism.data_parallel_shard_degree=2", steps(6)},
               4);
    MetricLines moving = read_metrics(folder / "moving");
    const MetricLines one = read_metrics(folder / "one");
    moving.steps.back().loss_max = one.steps.back().loss_max;
    compare(moving, one);
    // with the same stages the bits are the same: no sum changes its order
    train_tiny(folder / "whole", data, more + pipeline(2, "1F1B") + Arguments{steps(6)}, 2);
    train_tiny(folder / "parts", data, more + pipeline(2, "1F1B") + Arguments{steps(2)}, 2);
    train_tiny(folder / "parts", data, more + pipeline(2, "1F1B") + Arguments{steps(6)}, 2);
    CHECK(differing_arrays(folder / "whole" / checkpoint_of(6), folder / "parts" / checkpoint_of(6)).empty());
}

TEST_CASE("a trace has the actions of the table around their kernels") {
    const TemporaryFolder folder;
    train_tiny(folder / "out", write_200_windows(folder),
               common + pipeline(2, "1F1B") +
                   Arguments{"--model.tied_embeddings", "--training.local_batch_size=4",
                             "--profiling.enable_profiling", "--profiling.profile_freq=2",
                             "--profiling.profiler_warmup=1", steps(2)},
               2);
    const fs::path file = folder / "out/profile_traces/iteration_2/rank0_trace.json";
    const JsonDocument trace = JsonDocument::read(file.string());
    std::string actions;
    double begin = 0, end = 0;
    int enclosed = 0, sums_of_table = 0;
    for (const JsonView& event : trace.root()["traceEvents"].elements()) {
        if (event.string("ph") != "X") continue;
        const double from = event.number("ts"), to = from + event.number("dur");
        if (event.string("cat") == "action") {
            actions += event.string("name") + "\n";
            begin = from;
            end = to;
        } else if (event.string("name") == "attention") {
            // the file has digits down to nanoseconds
            CHECK(begin <= from + 0.002);
            CHECK(to <= end + 0.002);
            ++enclosed;
        } else if (event.string("cat") == "communication") {
            sums_of_table += event["args"].string("axis") == "ranks with the embedding table";
        }
    }
    CHECK(sums_of_table == 1);
    const std::string batch =
        "F stage 0 micro_batch 0\nF stage 0 micro_batch 1\nB stage 0 micro_batch 0\n"
        "F stage 0 micro_batch 2\nB stage 0 micro_batch 1\nF stage 0 micro_batch 3\n"
        "B stage 0 micro_batch 2\nB stage 0 micro_batch 3\n";
    CHECK(actions == batch + batch);  // two local batches per step
    CHECK(enclosed == 2 * 4 * 2);     // two layers
}

TEST_CASE("a pipeline that does not fit the deck is refused with a remedy") {
    const TemporaryFolder folder;
    const fs::path data = write_200_windows(folder);
    const auto error_of = [&](const Arguments& more, int ranks = 2) {
        const Outcome run = run_coeus(tiny_run(
            folder / "out", data, common + more + Arguments{"--dry_run", fmt::format("--ranks={}", ranks)}));
        CHECK(run.exit_code == 2);
        return run.output;
    };
    CHECK_THAT(error_of(pipeline(8, "1F1B"), 8), Contains("8 stages"));
    CHECK_THAT(error_of(pipeline(2, "DualPipeV") + Arguments{"--training.local_batch_size=1"}),
               Contains("training.local_batch_size = 1 in micro-batches of 1") &&
                   Contains("the nearest valid local_batch_size is 4"));
    CHECK_THAT(
        error_of(pipeline(2, "1F1B") + Arguments{"--parallelism.pipeline_parallel_layers_per_stage=2"}),
        Contains("makes 3 stages of 6 layers") && Contains("must be a multiple of") &&
            Contains("the nearest is 4"));
    CHECK_THAT(error_of(pipeline(2, "ZBVZeroBubble") +
                        Arguments{"--parallelism.pipeline_parallel_layers_per_stage=1"}),
               Contains("ZBVZeroBubble has two stages on each rank"));
    CHECK_THAT(error_of(pipeline(2, "PipelineScheduleMulti")),
               Contains("needs your own table in parallelism.pipeline_parallel_schedule_csv"));
    CHECK_THAT(error_of(pipeline(2, "1F1B") +
                        Arguments{"--parallelism.pipeline_parallel_first_stage_less_layers=7"}),
               Contains("the nearest valid value is"));
    CHECK_THAT(error_of(pipeline(2, "1F1B") +
                        Arguments{"--parallelism.module_fqns_per_model_part=tok_embeddings;layers.1"}),
               Contains("\"layers.1\" is listed where \"layers.0\" is expected"));
    write_file(folder / "wrong.csv", "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n");
    CHECK_THAT(error_of(pipeline(2, "1F1B") + Arguments{"--training.local_batch_size=2",
                                                        "--parallelism.pipeline_parallel_schedule_csv=" +
                                                            (folder / "wrong.csv").string()}),
               Contains("rank 0, cell 1: 0B0 waits forever"));
    write_file(folder / "other.csv", "0F0,0B0\n1F0,1B0\n");
    const Arguments other = {"--parallelism.pipeline_parallel_schedule_csv=" +
                             (folder / "other.csv").string()};
    CHECK_THAT(error_of(pipeline(2, "1F1B") + other),
               Contains("is for 1 micro-batches; set training.local_batch_size = 1"));
    CHECK_THAT(error_of(pipeline(4, "1F1B") + other, 4),
               Contains("has rows for 2 ranks; set parallelism.pipeline_parallel_degree = 2"));
}
