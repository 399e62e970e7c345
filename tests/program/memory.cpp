// SPDX-License-Identifier: Apache-2.0
// Memory as a user sees it: recomputation that changes no result, snapshots, and the refusal of a run that
// does not fit.
#include "coeus/device/memory.hpp"

#include "coeus/base/text.hpp"
#include "coeus/file/json.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

TEST_CASE("whatever is recomputed, the results are the same") {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(40 * 17)});
    const auto run = [&](const std::string& name, const Arguments& more) {
        const Outcome outcome = train_tiny(
            folder / name, folder / "tokens.h5",
            Arguments{"--model.n_layers=4", "--training.mixed_precision_param=bfloat16"} + more, 2);
        return std::pair(outcome.output, read_metrics(folder / name));
    };
    const std::string mode = "--activation_checkpoint.mode=",
                      option = "--activation_checkpoint.selective_ac_option=";
    const auto [said, plain] = run("none", {mode + "none"});
    CHECK(count_of("Activation checkpointing recomputes", said) == 0);
    CHECK(plain.losses().size() == 6);
    const std::vector<std::pair<Arguments, std::string>> modes = {
        {{mode + "full"}, " 4 of 4 blocks; activations per micro-batch "},
        {{mode + "selective", option + "op"},
         " norms and activation functions of 4 of 4 blocks; activations per micro-batch "},
        {{mode + "selective"}, " 2 of 4 blocks; activations per micro-batch "},
        {{mode + "memory_budget", "--activation_checkpoint.memory_budget=0.2"}, " "}};
    for (size_t i = 0; i < modes.size(); ++i) {
        const auto [output, metrics] = run("mode" + std::to_string(i), modes[i].first);
        INFO(output);
        CHECK(count_of("Activation checkpointing recomputes" + modes[i].second, output) == 1);
        CHECK(metrics.losses() == plain.losses());
        for (size_t s = 0; s < plain.steps.size(); ++s)
            CHECK(metrics.steps[s].grad_norm == plain.steps[s].grad_norm);
    }
}

TEST_CASE("every rank writes snapshots of its memory, as well as profile and traces") {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(40 * 17)});
    const Arguments snapshots = {"--profiling.enable_memory_snapshot", "--profiling.memory_snapshot_freq=2",
                                 "--profiling.save_memory_snapshot_folder=memory"};
    const Outcome run = train_tiny(folder / "out", folder / "tokens.h5",
                                   snapshots + Arguments{"--profile", "--profiling.enable_profiling",
                                                         "--profiling.profile_freq=4", steps(5)},
                                   2);
    CHECK(count_of("Profile of rank 0", run.output) == 1);
    CHECK(count_of("Trace of step 4", run.output) == 1);
    for (const char* step : {"step-00000002", "step-00000004"})
        for (const char* rank : {"rank_0", "rank_1"}) {
            const auto file = (folder / "out/memory" / step / rank).string();
            const JsonDocument snapshot = JsonDocument::read(file + ".json");
            CHECK(snapshot.root()["tensors"].size() > 20);
            CHECK_THAT(read_file(file + ".svg"), Contains("gemm of layers.1.feed_forward.w1+w3"));
        }
    CHECK_FALSE(std::filesystem::exists(folder / "out/memory/step-00000003"));
    CHECK(read_metrics(folder / "out").losses().size() == 5);
    // by default, at the steps of the profile's cycle
    train_tiny(folder / "usual", folder / "tokens.h5",
               {"--profiling.enable_memory_snapshot", "--profiling.profile_freq=5"});
    CHECK(std::filesystem::exists(folder / "usual/memory_snapshot/step-00000005/rank_0.json"));
}

TEST_CASE("a run that does not fit is refused with a remedy, and a dry run reports it") {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(40 * 17)});
    const Arguments huge = {"--model.ffn_hidden=32768", "--model.dim=2048", "--model.n_layers=256"};
    const Outcome run = run_coeus(tiny_run(folder / "out", folder / "tokens.h5", huge), 2, {}, folder.path());
    CHECK(run.exit_code == 2);
    CHECK_THAT(run.output, Contains("the run needs ") && Contains("the largest terms: ") &&
                               Contains("ranks would do: with "));
    CHECK(count_of("the run needs", run.output) == 1);
    // the part of the host's memory that each of its two ranks may use
    const std::string share = bytes_text(double(memory_limit_bytes() / 2));
    CHECK_THAT(run.output, Contains(" of " + share) && Contains("but only " + share + " is available;"));
    const Outcome dry = run_coeus(
        tiny_run(folder / "dry", folder / "tokens.h5", huge + Arguments{"--dry_run"}), 0, {}, folder.path());
    CHECK(dry.exit_code == 0);
    CHECK_THAT(dry.output, Contains("a run would be refused. ") && Contains(" ranks would do"));
}

TEST_CASE("if the stages of one rank do not fit, all ranks end") {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(40 * 17)});
    const Arguments uneven = {"--model.ffn_hidden=16777216", "--model.dim=2048",
                              "--parallelism.pipeline_parallel_degree=2",
                              "--parallelism.pipeline_parallel_schedule=GPipe",
                              "--parallelism.module_fqns_per_model_part=tok_embeddings;"
                              "layers.0,layers.1,norm,output"};
    // rank 0 ends too and reports it; otherwise rank 1 reports it itself, after waiting for rank 0
    const Outcome run =
        run_coeus(tiny_run(folder / "out", folder / "tokens.h5", uneven + Arguments{"--log.ranks=0,1"}), 2,
                  {}, folder.path());
    INFO(run.output);
    CHECK(run.exit_code == 2);
    CHECK(count_of("rank 0: rank 1: the run needs ", run.output) == 1);
    CHECK(count_of("the run needs ", run.output) == 1);
    CHECK(count_of(" - error - ", run.output) == 1);
    const Outcome dry = run_coeus(
        tiny_run(folder / "dry", folder / "tokens.h5", uneven + Arguments{"--dry_run", "--ranks=2"}), 0, {},
        folder.path());
    CHECK_THAT(dry.output, Contains("a run would be refused. No change of the deck makes this model fit"));
}
