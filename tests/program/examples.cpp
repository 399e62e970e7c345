// SPDX-License-Identifier: Apache-2.0
// The examples of examples/ do what they promise, in shortened form.
#include "coeus/data/token_file.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"

#include <cmath>
#include <filesystem>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

TEST_CASE("examples: resume_elsewhere moves a run between meshes without a change of its loss curve") {
    const TemporaryFolder folder;
    const Outcome walk = run_shell("STEPS=6 '" + paths::source() + "/examples/resume_elsewhere/run.sh' '" +
                                   folder.path().string() + "' '" + paths::program() + "' < /dev/null");
    INFO(walk.output);
    REQUIRE(walk.exit_code == 0);
    CHECK_THAT(walk.output, Contains("Mesh: 2 ranks: dp_shard 2") && Contains("Mesh: 4 ranks: pp 2 x tp 2") &&
                                Contains("Resuming from moved/checkpoint/step-00000002.h5: step 2") &&
                                Contains("Resuming from moved/checkpoint/step-00000004.h5: step 4") &&
                                Contains("checkpoint of Coeus, weights and optimizer") &&
                                Contains("117 arrays in both") && Contains("Loss (nats per token)"));
    const MetricLines stayed = read_metrics(folder / "stayed"), moved = read_metrics(folder / "moved");
    // each start also logs its last step
    const auto last = [](const MetricLines& lines) {
        return lines.steps.empty() ? 0 : lines.steps.back().step;
    };
    REQUIRE(last(stayed) == 6);
    REQUIRE(last(moved) == 6);
    CHECK(relatively_close(moved.steps.back().loss, stayed.steps.back().loss, 1e-12));
}

namespace {

// Runs run.sh of an example with settings for its environment; returns its output.
std::string run_example(const std::string& name, const std::string& settings,
                        const std::filesystem::path& folder) {
    const Outcome done = run_shell(settings + " '" + paths::source() + "/examples/" + name + "/run.sh' '" +
                                   folder.string() + "' '" + paths::program() + "' < /dev/null");
    INFO(done.output);
    REQUIRE(done.exit_code == 0);
    return done.output;
}

}  // namespace

TEST_CASE("examples: pretrain_tiny goes from text to a sample, and a second call resumes") {
    const TemporaryFolder folder;
    const std::string first = run_example("pretrain_tiny", "STEPS=2", folder.path());
    CHECK_THAT(first, Contains("documents      20,000") && Contains("step:  1  loss:  6.") &&
                          Contains("Training completed at step 2") && Contains("A small fox") &&
                          Contains("Loss (nats per token)"));
    CHECK_THAT(run_example("pretrain_tiny", "STEPS=3", folder.path()),
               Contains("Resuming from ./outputs/checkpoint/step-00000002.h5: step 2") &&
                   Contains("Training completed at step 3"));
    CHECK(read_metrics(folder / "outputs").steps.back().loss < 6.3);
}

TEST_CASE("examples: data writes tokens by a script, trains on them and converts them") {
    const TemporaryFolder folder;
    const std::string output = run_example("data", "STEPS=4", folder.path());
    CHECK_THAT(output, Contains("stories: token file of Megatron-LM, "));
    CHECK_THAT(output, Contains("documents      400"));
    CHECK_THAT(output, Contains("step:  4"));
    TokenFile theirs(folder / "stories"), ours(folder / "stories.h5");
    REQUIRE(theirs.num_tokens() == ours.num_tokens());
    CHECK(theirs.document_bounds(0, 399) == ours.document_bounds(0, 399));
    CHECK(theirs.max_token() == 256);
}

TEST_CASE("examples: finetune_from_hub starts from a Hugging Face folder and ends with one") {
    const TemporaryFolder folder;
    const std::string output = run_example("finetune_from_hub", "BASE_STEPS=6 STEPS=2", folder.path());
    CHECK_THAT(output, Contains("Starting from the weights of ./base") &&
                           Contains("outputs/checkpoint/hf-00000002: Hugging Face folder") &&
                           Contains("Training completed at step 2"));
    // random weights would have the logarithm of 384
    const MetricLines lines = read_metrics(folder / "outputs");
    CHECK(lines.steps.front().loss < 5.9);
    CHECK(lines.steps.back().loss < lines.steps.front().loss);
}

TEST_CASE("examples: custom_schedule trains to the losses of 1F1B with a smaller bubble") {
    const TemporaryFolder folder;
    const std::string output = run_example("custom_schedule", "STEPS=2", folder.path());
    CHECK_THAT(output, Contains("bubble          20.0 %") && Contains("bubble          7.7 %") &&
                           Contains("wrong.csv: rank 0, cell 0: 0I0 needs 0F0"));
    const MetricLines usual = read_metrics(folder / "1f1b"), ours = read_metrics(folder / "ours");
    REQUIRE(usual.steps.size() == ours.steps.size());
    REQUIRE(usual.steps.back().step == 2);
    for (size_t i = 0; i < usual.steps.size(); ++i) CHECK(usual.steps[i].loss == ours.steps[i].loss);
}

TEST_CASE("examples: recipes continue a stable run, and the first rate of a decay is the stable one") {
    const TemporaryFolder folder;
    const std::string output = run_example("recipes", "STEPS=6", folder.path());
    CHECK(count_of("Resuming from stable/checkpoint/step-00000006.h5: step 6", output) == 2);
    CHECK_THAT(output, Contains("Starting from the weights of ./decay/checkpoint/step-00000009.h5") &&
                           Contains("Starting from the weights of ./base") &&
                           Contains("./continued/checkpoint/hf-00000003"));
    CHECK(std::filesystem::exists(folder / "recipes.html"));
    // the first step of each deck, with the next rates
    const auto lines = [&](const std::string& deck, const Arguments& more) {
        const Outcome run =
            run_coeus(Arguments{"train", paths::source() + "/examples/recipes/" + deck + ".toml",
                                "--job.dump_folder=again_" + deck, "--metrics.log_freq=1"} +
                          more,
                      0, {}, folder.path());
        INFO(run.output);
        REQUIRE(run.exit_code == 0);
        return read_metrics(folder / ("again_" + deck)).steps;
    };
    const Arguments branch = {steps(10), "--checkpoint.initial_load_path=stable/checkpoint/step-00000006.h5"};
    const std::vector<StepLine> decay = lines("decay", branch), mid = lines("mid_training", branch);
    REQUIRE(decay.size() == 4);
    CHECK(decay[0].step == 7);
    CHECK(decay[0].lr == 3e-3);
    for (size_t i = 1; i < 4; ++i)
        CHECK(relatively_close(decay[i].lr, 3e-3 * (1 - std::sqrt(double(i) / 4)), 1e-12));
    CHECK(mid.at(0).lr == 3e-3);
    CHECK(relatively_close(mid.at(3).lr, 3e-3 * (0.1 + 0.9 / 4), 1e-12));
    // moments and place in the data are those of the stable run, which would have taken the same step
    const std::vector<StepLine> stable = lines("stable", {steps(7)});
    CHECK(stable.at(6).loss == decay[0].loss);
    CHECK(stable.at(6).grad_norm == decay[0].grad_norm);
    CHECK(mid[0].loss != decay[0].loss);
    // random weights would have the logarithm of 384, and rows four times as long change little
    const std::vector<StepLine> longer = lines("long_context", {steps(1)});
    CHECK(std::fabs(longer.at(0).loss - decay.back().loss) < 0.5);
    CHECK(longer.at(0).tokens_seen == 1024);
}
