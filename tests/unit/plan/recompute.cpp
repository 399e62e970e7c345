// SPDX-License-Identifier: Apache-2.0
// Which blocks are recomputed: torchtitan's way to count, and a budget against a search through all choices.
#include "coeus/plan/recompute.hpp"

#include "coeus/models/registry.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace coeus;
using namespace coeus::test;
using enum Recompute;
using Mode = RecomputeOptions::Mode;

namespace {

std::vector<size_t> layers(size_t first, size_t last) {
    std::vector<size_t> all;
    for (size_t layer = first; layer < last; ++layer) all.push_back(layer);
    return all;
}

PlanOfChoices plans_of(const DecoderConfig& config, const BatchShape& shape = {2, 19}) {
    return [config, shape](const std::vector<Recompute>& choices) {
        const Decoder decoder(config, {Dtype::f32, Dtype::bf16}, 1, {}, choices);
        return measure_training(decoder, shape, {}, {1});
    };
}

DecoderConfig config_of(int64_t layers) {
    DecoderConfig config = tiny_config();
    config.layers = layers;
    return config;
}

}  // namespace

TEST_CASE("recomputation: modes select their blocks") {
    const auto blocks = [](const RecomputeOptions& options, int64_t layers) {
        return plan_recompute(options, layers, plans_of(config_of(layers))).blocks;
    };
    CHECK(blocks({}, 3).empty());
    CHECK(blocks({.mode = Mode::operations}, 3) == std::vector{operations, operations, operations});
    CHECK(blocks({.mode = Mode::blocks}, 3) == std::vector{block, block, block});
    CHECK(blocks({.mode = Mode::blocks, .every = 2}, 5) ==
          std::vector{nothing, block, nothing, block, nothing});
    CHECK(blocks({.mode = Mode::blocks, .every = 3}, 3) == std::vector{nothing, nothing, block});
    CHECK(blocks({.mode = Mode::blocks, .every = 4}, 3).empty());  // none is a fourth one
    CHECK(blocks({.mode = Mode::budget, .budget = 1}, 3).empty());
}

TEST_CASE("recomputation: a frame and its arithmetic are those of the plan") {
    const PlanOfChoices plan_of = plans_of(config_of(4));
    const RecomputePlan operations_alone = plan_recompute({.mode = Mode::operations}, 4, plan_of),
                        whole = plan_recompute({.mode = Mode::blocks}, 4, plan_of),
                        half = plan_recompute({.mode = Mode::blocks, .every = 2}, 4, plan_of);
    CHECK(whole.frame == plan_of({block, block, block, block}).activations);
    CHECK(whole.frame_without == plan_of({}).activations);
    CHECK(whole.frame < operations_alone.frame);
    CHECK(operations_alone.frame < whole.frame_without);
    CHECK(operations_alone.extra > 0);
    CHECK(operations_alone.extra < whole.extra);
    CHECK(std::fabs(half.extra - whole.extra / 2) < 1e-12);

    // a large block recomputes all products but the last one: a third of forward and backward
    const DecoderConfig& model = find_flavor(find_family("llama3"), "8B");
    const double per_token =
        2.0 * double(model.dim) *
            double((2 * model.head_sizes().heads + 2 * model.head_sizes().kv_heads) *
                       model.head_sizes().head_dim +
                   2 * model.feed_forward.hidden) +
        4 * double(model.head_sizes().heads * model.head_sizes().head_dim) * (512 + 1) / 2;
    const PlanOfChoices plan_8b = plans_of(model, {1, 512});
    const std::vector<Recompute> one = [&] {
        std::vector<Recompute> choices(size_t(model.layers), nothing);
        choices[7] = block;
        return choices;
    }();
    const double extra = plan_8b(one).flops - plan_8b({}).flops;
    CHECK(std::fabs(extra / (512 * per_token) - 1) < 2e-3);  // norms, RoPE, SwiGLU
    CHECK(plan_recompute({.mode = Mode::operations}, model.layers, plan_8b).extra < 1e-3);
}

TEST_CASE("recomputation: a budget gets the least arithmetic whose frame fits") {
    constexpr int64_t layers = 5;
    const DecoderConfig config = config_of(layers);
    const PlanOfChoices plan_of = plans_of(config);
    const double none = double(plan_of({}).activations),
                 full = double(plan_of(std::vector<Recompute>(layers, block)).activations);
    REQUIRE(full < none);
    const std::vector budgets = {0.0, 0.01, 0.1, 0.3, 0.5, 0.6, 0.75, 0.9, 0.99, 1.0};
    for (const double budget : budgets) {
        CAPTURE(budget);
        const double limit = full + budget * (none - full);
        const RecomputePlan plan = plan_recompute({.mode = Mode::budget, .budget = budget}, layers, plan_of);
        const LayerMemory chosen = plan_of(plan.blocks);
        CHECK(double(chosen.activations) <= limit);
        // all choices
        double least = std::numeric_limits<double>::infinity();
        for (int code = 0; code < 243; ++code) {
            std::vector<Recompute> choices;
            for (int i = 0, rest = code; i < layers; ++i, rest /= 3) choices.push_back(Recompute(rest % 3));
            const LayerMemory other = plan_of(choices);
            if (double(other.activations) <= limit) least = std::min(least, other.flops);
        }
        CHECK(chosen.flops == least);
    }
}

TEST_CASE("recomputation: a budget for the largest model is found quickly") {
    const DecoderConfig& model = find_flavor(find_family("llama3"), "405B");
    const RecomputePlan plan =
        plan_recompute({.mode = Mode::budget, .budget = 0.25}, model.layers, plans_of(model, {1, 8192}));
    CHECK(double(plan.frame) <= 0.35 * double(plan.frame_without));
    const auto whole = std::count(plan.blocks.begin(), plan.blocks.end(), block);
    CHECK(whole > 60);
    CHECK(whole < 126);
}

TEST_CASE("recomputation: summarised in one line") {
    const auto text_of = [](const RecomputePlan& plan) { return plan.text(layers(0, plan.blocks.size())); };
    RecomputePlan plan;
    CHECK(text_of(plan) == "");
    plan = {.blocks = {operations, operations}, .frame = 3 << 20, .frame_without = 4 << 20, .extra = 0.0123};
    CHECK(text_of(plan) ==
          "Activation checkpointing recomputes norms and activation functions of 2 of 2 blocks; activations "
          "per "
          "micro-batch 3.00 MiB instead of 4.00 MiB, 1.2% more FLOPs");
    plan.blocks = {block, nothing, operations};
    CHECK_THAT(text_of(plan), Catch::Contains("1 of 3 blocks, norms and activation functions of 1 other;"));
    // of a rank's own stages
    plan.blocks = {block, nothing, operations, block};
    CHECK_THAT(plan.text({0, 3}), Catch::Contains("recomputes 2 of 2 blocks; activations per"));
    CHECK_THAT(plan.text({1, 2}),
               Catch::Contains("recomputes norms and activation functions of 1 of 2 blocks; activations"));
    CHECK_THAT(plan.text({1}), Catch::Contains("recomputes none of 1 block; activations"));
}
