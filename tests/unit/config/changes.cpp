// SPDX-License-Identifier: Apache-2.0
// The messages of a run that resumes from a checkpoint about changed options.
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

TEST_CASE("changes: a deck equal to the checkpoint's has none") {
    Config config;
    CHECK(changes_since(deck_text(config), config).empty());
    CHECK(changes_since("", config).empty());  // an option that an older deck lacks had its default
    CHECK_THROWS_WITH(changes_since("[model]\nname = ", config), Contains("the deck of the checkpoint:2"));
    config.optimizer.beta1 = 0.5;
    CHECK(changes_since(deck_text(config), config).empty());
}

TEST_CASE("changes: one line for each thing that changed options affect") {
    Config config;
    config.training.seq_len = 64;
    config.training.shuffle = true;
    config.lr_scheduler.warmup_steps = 3;
    config.optimizer.beta2 = 0.5;
    config.job.dump_folder = "elsewhere";
    config.parallelism.tensor_parallel_degree = 2;
    CHECK(changes_since(deck_text(Config()), config) ==
          Lines{"the data differs from the checkpoint's: some samples may be used twice or never "
                "(training.seq_len was 2048, is 64; training.shuffle was false, is true)",
                "the learning-rate schedule differs from the checkpoint's; the rate may jump "
                "(lr_scheduler.warmup_steps was 200, is 3)",
                "the run differs from the checkpoint's: optimizer.beta2 was 0.95, is 0.5"});
}

TEST_CASE("changes: the size of chunks of logits is the checkpoint's, unless the deck has another") {
    Config of_checkpoint, config;
    of_checkpoint.kernels.logits_chunk_mib = 256;
    CHECK(logits_chunk_of_deck(deck_text(of_checkpoint)) == 256);
    CHECK(changes_since(deck_text(of_checkpoint), config).empty());
    config.kernels.logits_chunk_mib = 256;
    CHECK(changes_since(deck_text(of_checkpoint), config).empty());
    config.kernels.logits_chunk_mib = 1024;
    CHECK(changes_since(deck_text(of_checkpoint), config) ==
          Lines{"the run differs from the checkpoint's: kernels.logits_chunk_mib was 256, is 1024"});
    // a run on CPUs does not write it
    CHECK(!logits_chunk_of_deck(deck_text(Config())));
    CHECK(!logits_chunk_of_deck(""));
    // GPUs had 256 MiB in 0.2
    CHECK(logits_chunk_of_deck("[training]\nsteps = 4\n") == 256);
    for (const char* value : {"0", "-1", "65537", "\"256\"", "1.5"})
        CHECK(!logits_chunk_of_deck(std::string("[kernels]\ndeterministic = true\nlogits_chunk_mib = ") +
                                    value + "\n"));
}

TEST_CASE("changes: the kind of norms that decks of 0.2 have by default is not one") {
    Config config;
    const std::string older = "[model]\nnorm_type = \"rmsnorm\"\n";
    CHECK(changes_since(older, config).empty());
    config.model.norm_type = "rmsnorm";
    CHECK(changes_since(older, config).empty());
    config.model.norm_type = "layernorm";
    CHECK(changes_since(older, config) == Lines{"the run differs from the checkpoint's: model.norm_type was "
                                                "\"rmsnorm\", is \"layernorm\""});
    CHECK(changes_since(deck_text(config), Config()) ==
          Lines{"the run differs from the checkpoint's: model.norm_type was \"layernorm\", is not given"});
}

TEST_CASE("changes: training.steps is the schedule's length, unless the schedule has its own") {
    Config config;
    config.training.steps = 20;
    const Lines lines = changes_since(deck_text(Config()), config);
    REQUIRE(lines.size() == 1);
    CHECK_THAT(lines[0], Contains("training.steps was 10000, is 20"));
    Config before;
    before.lr_scheduler.total_steps = config.lr_scheduler.total_steps = 20;
    CHECK(changes_since(deck_text(before), config).empty());
}

TEST_CASE("changes: options of a checkpoint's deck without effect are not reported") {
    CHECK(changes_since("[encoder]\nt5_encoder = \"other\"\n", Config()).empty());
    // an unknown option may have had an effect
    const Lines lines = changes_since("[model]\nfuture = 3\n", Config());
    REQUIRE(lines.size() == 1);
    CHECK_THAT(lines[0], Contains("the run differs from the checkpoint's: model.future was 3, is not given"));
}

TEST_CASE("options without a field affect nothing, and every other option declares what it affects") {
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
    CHECK_THAT(rate[0], Contains("the learning-rate schedule differs from the checkpoint's") &&
                            Contains("(optimizer.param_groups[1].optimizer_kwargs.lr was 0.1, is 0.2)"));
    const auto other =
        changes_since(before, with_groups("{optimizer_kwargs = {lr = 0.1}, roles = \"norm\"}"));
    REQUIRE(other.size() == 1);
    CHECK_THAT(other[0], Contains("the run differs from the checkpoint's: "
                                  "optimizer.param_groups[1].optimizer_kwargs.eps was 1.0, is not given"));
    // for a checkpoint's deck without groups
    CHECK_THAT(changes_since(deck_text(Config()), with_groups("{roles = \"norm\"}"))[0],
               Contains("optimizer.param_groups[1].roles was not given, is \"norm\""));
}

TEST_CASE("changes: a finished run's folder refuses a deck with other numbers") {
    Config config;
    const std::string before = deck_text(config);
    config.training.steps = 5;
    config.job.description = "another one";
    config.parallelism.tensor_parallel_degree = 2;
    CHECK_NOTHROW(require_deck_of_finished_run(before, config, 10));
    config.optimizer.lr = 0.5;
    config.training.seq_len = 64;
    config.job.dump_folder = "out";
    CHECK_THROWS_WITH(
        require_deck_of_finished_run(before, config, 10),
        Catch::Equals("out contains a finished run (step 10) with a different deck: training.seq_len was "
                      "2048, is 64; optimizer.lr was 0.0008, is 0.5. Give this run its own folder, such as "
                      "--job.dump_folder=\"out/{training.seq_len}_{optimizer.lr}\", or increase "
                      "training.steps to continue the finished run with this deck"));
}
