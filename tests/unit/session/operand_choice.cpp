// SPDX-License-Identifier: Apache-2.0
// Which planned runs keep weights in 8 bits for a step.
#include "coeus/session/operand_choice.hpp"

#include "coeus/deck/command_line.hpp"
#include "coeus/pretrained/model_source.hpp"
#include "coeus/setup/run_options.hpp"
#include "coeus/train/preflight.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"
#include "support/support.hpp"

#include <algorithm>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

// 8 billion parameters, 7.5 of them in layers in 8 bits.
Words deck_in_8_bits(const Words& more) {
    Words words = {paths::source() + "/inputs/base/llama3_8b.toml",
                   "--dry_run",
                   "--device=cuda",
                   "--training.seq_len=1024",
                   "--training.local_batch_size=1",
                   "--training.global_batch_size=2",
                   "--training.dtype=bfloat16",
                   "--parallelism.data_parallel_shard_degree=1",
                   "--model.converters=float8",
                   "--float8.filter_fqns=output"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

struct OfOperands {
    DecoderConfig model;
    EngineOptions options;
    int64_t bytes(bool keeps) const {
        EngineOptions changed = options;
        changed.keeps_operands = keeps;
        int64_t most = 0;
        for (const MemoryPlan& plan : plans_of_stages(model, changed)) most = std::max(most, plan.total());
        return most;
    }
    bool are_kept(std::optional<int64_t> limit) const {
        return with_kept_operands(model, options, limit).keeps_operands;
    }
};

OfOperands planned_operands(const Words& more, int ranks = 1) {
    const Config config = parse_command_line(deck_in_8_bits(more)).config;
    const DecoderConfig model = model_from_deck(config);
    return {model, planned_options(config, model, mesh_shape(config, ranks), 90)};
}

}  // namespace

TEST_CASE("kept operands: chosen if micro-batches share weights, and every stage's plan fits with them") {
    const OfOperands p = planned_operands({});
    const int64_t with = p.bytes(true), without = p.bytes(false);
    CHECK(with - without > int64_t(12) << 30);
    CHECK(p.are_kept(with));
    CHECK(p.are_kept(std::nullopt));
    OfOperands in_bfloat16 = p;
    in_bfloat16.options.types.precision = {};
    CHECK_FALSE(in_bfloat16.are_kept(std::nullopt));
    CHECK_FALSE(p.are_kept(with - 1));
    const auto are_kept = [](const Words& more, int ranks) {
        return planned_operands(more, ranks).are_kept(std::nullopt);
    };
    CHECK_FALSE(are_kept({"--training.global_batch_size=1"}, 1));
    CHECK_FALSE(are_kept({"--device=cpu"}, 1));
    CHECK_FALSE(are_kept({"--parallelism.data_parallel_shard_degree=2"}, 2));
    CHECK_FALSE(are_kept({"--float8.enable_fsdp_float8_all_gather"}, 1));
    CHECK(are_kept({"--parallelism.tensor_parallel_degree=2"}, 2));
    // the micro-batches of a pipeline share weights too
    CHECK(are_kept({"--parallelism.pipeline_parallel_degree=2", "--training.local_batch_size=2",
                    "--parallelism.pipeline_parallel_microbatch_size=1"},
                   2));
}

TEST_CASE("kept operands: a dry run plans them, or says why not") {
    const auto said = [](const char* gpu) {
        std::string all;
        for (const Finding& line : preflight(parse_command_line(deck_in_8_bits({gpu})), 1))
            all += line.line() + "\n";
        return all;
    };
    CHECK_THAT(said("--gpu=h200"),
               Contains("weights in 8 bits") && !Contains("quantized in each micro-batch"));
    CHECK_THAT(
        said("--memory=80GiB"),
        !Contains("weights in 8 bits ") &&
            Contains("Notice: weights are quantized in each micro-batch; if a rank kept them in 8 bits "
                     "for a step, it would not fit into its GPU"));
}
