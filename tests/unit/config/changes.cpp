// SPDX-License-Identifier: Apache-2.0
// What a run that continues from a checkpoint says about options that changed.
#include "../../../src/config/option.hpp"
#include "coeus/config/config.hpp"
#include "support/catch.hpp"

using namespace coeus;
using Catch::Contains;
using Lines = std::vector<std::string>;

namespace {

Config with_groups(const std::string& groups) {
    Config config;
    config.optimizer.param_groups = {TomlTable{"{roles = \"bias\"}"}, TomlTable{groups}};
    return config;
}

}  // namespace

TEST_CASE("changes: a deck that is the checkpoint's has none") {
    Config config;
    CHECK(changes_since(deck_text(config), config).empty());
    CHECK(changes_since("", config).empty());  // what an older deck does not say had its default
    config.optimizer.beta1 = 0.5;
    CHECK(changes_since(deck_text(config), config).empty());
}

TEST_CASE("changes: one line for each thing that options matter to") {
    Config config;
    config.training.seq_len = 64;
    config.training.shuffle = true;
    config.lr_scheduler.warmup_steps = 3;
    config.optimizer.beta2 = 0.5;
    config.job.dump_folder = "elsewhere";
    config.parallelism.tensor_parallel_degree = 2;
    CHECK(changes_since(deck_text(Config()), config) ==
          Lines{"the data is not the checkpoint's: samples may be seen again or never (training.seq_len was "
                "2048, is 64; training.shuffle was false, is true)",
                "the learning-rate schedule is not the checkpoint's, the rate may jump "
                "(lr_scheduler.warmup_steps was 200, is 3)",
                "the run is not the checkpoint's: optimizer.beta2 was 0.95, is 0.5"});
}

TEST_CASE("changes: training.steps is the schedule's length, unless that has its own") {
    Config config;
    config.training.steps = 20;
    const Lines lines = changes_since(deck_text(Config()), config);
    REQUIRE(lines.size() == 1);
    CHECK_THAT(lines[0], Contains("training.steps was 10000, is 20"));
    Config before;
    before.lr_scheduler.total_steps = config.lr_scheduler.total_steps = 20;
    CHECK(changes_since(deck_text(before), config).empty());
}

TEST_CASE("changes: what a checkpoint's deck says without an effect is not worth a word") {
    CHECK(changes_since("[encoder]\nt5_encoder = \"other\"\n", Config()).empty());
    // nobody knows what that was
    const Lines lines = changes_since("[model]\nfuture = 3\n", Config());
    REQUIRE(lines.size() == 1);
    CHECK_THAT(lines[0], Contains("the run is not the checkpoint's: model.future was 3, is not given"));
}

TEST_CASE("Options without a field matter to nothing, and each of the others says what it matters to") {
    bool any[4] = {};
    for (const coeus::config::Option& option : coeus::config::options()) {
        INFO(option.name);
        any[int(option.matters)] = true;
        if (option.slot == nullptr) CHECK(option.matters == coeus::config::to_nothing);
    }
    for (const bool some : any) CHECK(some);
}

TEST_CASE("a change of a parameter group names the group and its option") {
    const std::string before =
        deck_text(with_groups("{optimizer_kwargs = {lr = 0.1, eps = 1.0}, roles = \"norm\"}"));
    CHECK(changes_since(before, with_groups("{optimizer_kwargs = {lr = 0.1, eps = 1.0}, roles = \"norm\"}"))
              .empty());
    const auto rate =
        changes_since(before, with_groups("{optimizer_kwargs = {lr = 0.2, eps = 1.0}, roles = \"norm\"}"));
    REQUIRE(rate.size() == 1);
    CHECK_THAT(rate[0], Contains("the learning-rate schedule is not the checkpoint's") &&
                            Contains("(optimizer.param_groups[1].optimizer_kwargs.lr was 0.1, is 0.2)"));
    const auto other =
        changes_since(before, with_groups("{optimizer_kwargs = {lr = 0.1}, roles = \"norm\"}"));
    REQUIRE(other.size() == 1);
    CHECK_THAT(
        other[0],
        Contains("the run is not the checkpoint's: optimizer.param_groups[1].optimizer_kwargs.eps was 1.0, "
                 "is not given"));
    // of a deck without groups
    CHECK_THAT(changes_since(deck_text(Config()), with_groups("{roles = \"norm\"}"))[0],
               Contains("optimizer.param_groups[1].roles was not given, is \"norm\""));
}

TEST_CASE("changes: a finished run's folder takes no deck with other numbers") {
    Config config;
    const std::string before = deck_text(config);
    config.training.steps = 5;
    config.job.description = "another one";
    config.parallelism.tensor_parallel_degree = 2;
    CHECK_NOTHROW(require_deck_of_finished_run(before, config, 10));
    config.optimizer.lr = 0.5;
    config.training.seq_len = 64;
    config.job.dump_folder = "out";
    CHECK_THROWS_WITH(require_deck_of_finished_run(before, config, 10),
                      Catch::Equals("out has a finished run (step 10) of another deck: training.seq_len was "
                                    "2048, is 64; optimizer.lr was "
                                    "0.0008, is 0.5. Give this run a folder of its own, such as "
                                    "--job.dump_folder=\"out/{training.seq_len}_{optimizer.lr}\", or raise "
                                    "training.steps to continue the "
                                    "run that is there with this deck"));
}
