// SPDX-License-Identifier: Apache-2.0
// Options and values that are not implemented, that have no meaning here, and those with another name.
#include "coeus/deck/command_line.hpp"
#include "parsed.hpp"
#include "support/catch.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

TEST_CASE("features that are not implemented are refused by name in a real run and noticed in a dry run") {
    CHECK_THAT(
        error_of({"--model.name=flux"}),
        Catch::StartsWith("model.name = \"flux\": is not implemented yet; use ") && Contains(" or smollm3"));
    // an option that no run will ever support
    CHECK(error_of({"--optimizer.early_step_in_backward"}) ==
          "optimizer.early_step_in_backward = true: gradients are clipped by their global norm, and a step "
          "whose norm is not finite is not taken: no weight can be updated before the last gradient is "
          "there; remove it");
    // all messages at once
    CHECK_THAT(error_of({"--model.name=flux", "--loss.loss_fn=MSELoss"}),
               Contains("MSELoss") && Contains("model.name = \"flux\""));
    // an option that belongs to one of these features is checked, but not stored
    const Words notices = parsed({"--training.img_size=128"}).notices;
    REQUIRE(notices.size() == 1);
    CHECK_THAT(notices[0], Contains("training.img_size has no effect: it needs"));
    CHECK(parsed({"--parallelism.expert_parallel_comm_backend=standard"}).notices.empty());
    CHECK_THAT(error_of({"--parallelism.expert_parallel_comm_backend=mail"}), Contains("must be one of"));
    CHECK_THAT(error_of({"--training.img_size=0"}), Contains("must be at least 1"));
    // the default, given explicitly
    CHECK(parsed({"--optimizer.optimizer_factory_kwargs_by_name="}).notices.empty());
    CHECK(parsed({"--optimizer.optimizer_factory_kwargs_by_name=x"}).notices.size() == 1);
    CHECK_THROWS_WITH(
        parse_command_line({}),
        "training.dataset_path: is not given, and training.dataset = \"c4_test\" was not found in "
        "./datasets, ./tests/assets (set $COEUS_DATASETS to search another folder); Coeus downloads nothing. "
        "Set training.dataset_path to your own text or JSON Lines files (also .gz, .zst), a folder of these, "
        "or a token file made with `coeus tokenize INPUT --tokenizer FOLDER --output FILE.h5`");

    const CommandLine dry = parsed({"--dry_run", "--model.name=flux"});
    CHECK(dry.config.model.name == "flux");
    REQUIRE(dry.refusals.size() == 1);
    CHECK_THAT(dry.refusals[0], Contains("is not implemented yet") && Contains("(a real run refuses this)"));
    CHECK(dry.absent.empty());
    const CommandLine without_data = parse_command_line({"--dry_run"});
    CHECK(without_data.refusals.empty());
    REQUIRE(without_data.absent.size() == 1);
    CHECK_THAT(without_data.absent[0],
               Contains("training.dataset_path: is not given") && Contains("(a run needs it)"));
}

TEST_CASE("another name of a model is replaced by its own, with a notice") {
    const CommandLine deck = parsed({"--model.name=llama3_ft"});
    CHECK(deck.config.model.name == "llama3");
    REQUIRE(deck.notices.size() == 1);
    CHECK_THAT(deck.notices[0], Catch::StartsWith("model.name = \"llama3_ft\" is \"llama3\": ") &&
                                    Contains("parallelism.data_parallel_replicate_degree"));
    CHECK_THAT(error_of({"--fault_tolerance.semi_sync_method=diloco"}),
               Contains("train another model") && Contains("parallelism.data_parallel_replicate_degree"));
}

TEST_CASE("options without a meaning here: one notice for each reason, only if they ask for something") {
    CHECK(
        parsed({"--compile.enable", "--compile.components=model,loss"}).notices ==
        Words{"compile.enable, compile.components have no effect: kernels are compiled when Coeus is built"});
    CHECK(parsed({"--training.gc_freq=100"}).notices ==
          Words{"training.gc_freq has no effect: there is no garbage collector"});
    // torchtitan's default, given explicitly
    CHECK(parsed({"--training.gc_freq=50"}).notices.empty());
    CHECK(parsed({"--fault_tolerance.replica_id=0"}).notices.empty());
    CHECK(parsed({"--fault_tolerance.fragment_update_alpha=0"}).notices.empty());
    CHECK(parsed({"--fault_tolerance.fragment_update_alpha=0.0"}).notices.empty());
    CHECK(parsed({"--optimizer.fused"}).notices.size() == 1);
    CHECK(parsed({"--compile.enable=false", "--metrics.no_enable_wandb"}).notices.empty());
    CHECK(error_of({"--training.gc_freq=often"}) ==
          "command line: training.gc_freq = often: must be a whole number");
    CHECK_THAT(error_of({"--activation_checkpoint.memory_budget=half"}), Contains("must be a number"));
}

TEST_CASE("option names of 2024 are read as the current ones") {
    CHECK(config_of({"--training.batch_size=3"}).training.local_batch_size == 3);
    CHECK(config_of({"--training.warmup_steps=7"}).lr_scheduler.warmup_steps == 7);
    CHECK(config_of({"--checkpoint.enable_checkpoint"}).checkpoint.enable);
    CHECK(config_of({"--metrics.enable_color_printing"}).metrics.disable_color_printing == false);
    CHECK(config_of({"--metrics.no_enable_color_printing"}).metrics.disable_color_printing == true);
    CHECK(parsed({"--dry_run", "--experimental.pipeline_parallel_degree=2"})
              .config.parallelism.pipeline_parallel_degree == 2);
    CHECK(config_of({"--float8.enable_float8_linear"}).model.converters == Words{"quantize.linear.float8"});
    CHECK(config_of({"--float8.enable_float8_linear=false"}).model.converters.empty());
    CHECK(parsed({"--training.compile"}).notices ==
          Words{"training.compile has no effect: kernels are compiled when Coeus is built"});
    CHECK(error_of({"--training.batch_size=0"}) ==
          "command line: training.batch_size = 0: must be at least 1; the nearest valid value is 1");
    CHECK_THAT(error_of({"--training.batch_size=3", "--training.local_batch_size=4"}),
               Contains("training.local_batch_size") && Contains("training.batch_size") &&
                   Contains("are the same option; remove one of the two"));
    CHECK(error_of({"--experimental.pipeline_parallel_split_points=layers.4"}) ==
          "command line: experimental.pipeline_parallel_split_points is not an option of Coeus; set "
          "parallelism.module_fqns_per_model_part, the modules of each stage");
    CHECK_THAT(error_of({"--metrics.enable_color_printing=maybe"}), Contains("must be true or false"));
    CHECK_THAT(error_of({"--training.batch_sise=3"}), Contains("did you mean --training.batch_size?"));
}
