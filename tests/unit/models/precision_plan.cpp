// SPDX-License-Identifier: Apache-2.0
// Which matrices of a model are computed in 8 bits, why others stay, and parts of names that no matrix has.
#include "coeus/models/precision_plan.hpp"

#include "support/catch.hpp"

#include <tuple>

using namespace coeus;
using Names = std::vector<std::string>;

namespace {

Recipe linear(const Precision& precision, const std::string& name, int64_t outputs = 256,
              int64_t inputs = 512) {
    return recipe_of_linear(precision, name + ".weight", outputs, inputs);
}

// A model with four layers, of which the last two have experts, as it is built with these options.
std::vector<LayerMatrix> model(const Precision& precision) {
    std::vector<LayerMatrix> found = {{"tok_embeddings.weight", 1000, 256, false, Recipe::none, true}};
    const auto add = [&](const std::string& name, int64_t outputs, int64_t inputs) {
        found.push_back({name + ".weight", outputs, inputs, false, linear(precision, name, outputs, inputs)});
    };
    for (const std::string layer : {"layers.0.", "layers.1.", "layers.2.", "layers.3."}) {
        for (const std::string name : {"wq", "wk", "wv"})
            add(layer + "attention." + name, name == "wq" ? 256 : 48, 256);
        if (layer < "layers.2.") {
            add(layer + "feed_forward.w1", 768, 256);
            continue;
        }
        found.push_back({layer + "moe.router.gate.weight", 16, 256, false, Recipe::none, true});
        const std::string experts = layer + "moe.experts.w1";
        found.push_back({experts, 64, 256, true, recipe_of_experts(precision, experts, 64, 256)});
    }
    add("output", 1000, 256);
    return found;
}

using Line = std::tuple<std::string, int64_t, Recipe, Stays, std::string>;

std::vector<Line> lines(const Precision& precision) {
    std::vector<Line> found;
    for (const MatrixGroup& group : matrix_groups(precision, model(precision)))
        found.emplace_back(group.name, group.count, group.recipe, group.stays, group.filter);
    return found;
}

// "filter_fqns Output: output"
Names unused(const Precision& precision) {
    Names found;
    for (const UnusedPart& part : unused_parts(precision, model(precision))) {
        const char* const lists[] = {"filter_fqns", "fqns", "expert_fqns"};
        found.push_back(lists[int(part.list)] + (" " + part.part) + ": " + part.nearest);
    }
    return found;
}

}  // namespace

TEST_CASE("precision plan: sides are multiples of 16, and of 32 with MX") {
    const Precision float8 = {.linear = Recipe::rowwise}, mx = {.linear = Recipe::mx_floor},
                    experts = {.experts = Recipe::mx_rceil, .expert_fqns = {"experts"}};
    CHECK(linear(float8, "a", 48, 80) == Recipe::rowwise);
    CHECK(linear(mx, "a", 48, 64) == Recipe::none);
    CHECK(linear(mx, "a", 64, 80) == Recipe::none);
    CHECK(linear(mx, "a", 96, 64) == Recipe::mx_floor);
    CHECK(linear(float8, "a", 24, 64) == Recipe::none);
    CHECK(recipe_of_experts(experts, "layers.1.moe.experts.w1", 96, 64) == Recipe::mx_rceil);
    CHECK(recipe_of_experts(experts, "layers.1.moe.experts.w1", 96, 48) == Recipe::none);
    CHECK(recipe_of_experts(float8, "layers.1.moe.experts.w1", 96, 64) == Recipe::none);
    CHECK(linear(experts, "a") == Recipe::none);
}

TEST_CASE("precision plan: names in torchtitan's newest version count too") {
    const auto stays = [](const std::string& filter, const std::string& name) {
        return linear({.linear = Recipe::tensorwise, .filter_fqns = {filter}}, name) == Recipe::none;
    };
    CHECK(stays("lm_head", "output"));
    CHECK_FALSE(stays("lm_head", "layers.0.attention.wo"));
    CHECK(stays("attention.qkv_linear.wq", "layers.0.attention.wq"));
    CHECK(stays("qkv_linear", "layers.0.attention.wv"));
    CHECK_FALSE(stays("qkv_linear", "layers.0.attention.wo"));
    CHECK(stays("attention.wq", "layers.0.attention.wq"));
    CHECK_FALSE(stays("weight", "layers.0.attention.wq"));
}

TEST_CASE("precision plan: a list of names leaves out all others, and a filter some of these") {
    const Precision precision = {
        .linear = Recipe::mx_floor, .filter_fqns = {"layers.1"}, .fqns = {"attention", "w2"}};
    CHECK(linear(precision, "layers.0.attention.wq") == Recipe::mx_floor);
    CHECK(linear(precision, "layers.0.feed_forward.w2") == Recipe::mx_floor);
    CHECK(linear(precision, "layers.0.feed_forward.w1") == Recipe::none);
    CHECK(linear(precision, "layers.1.attention.wq") == Recipe::none);
    CHECK(linear(precision, "layers.10.attention.wq") == Recipe::none);
}

TEST_CASE("precision plan: experts are named by their module") {
    const auto converts = [](const std::string& part) {
        return recipe_of_experts({.experts = Recipe::rowwise, .expert_fqns = {part}},
                                 "layers.1.moe.experts.w1", 64, 64) == Recipe::rowwise;
    };
    CHECK(converts("experts"));
    CHECK(converts("layers.1.moe"));
    CHECK(converts("routed_experts"));  // torchtitan's newest name
    CHECK(converts(""));
    CHECK_FALSE(converts("w1"));
    CHECK_FALSE(converts("Experts"));
}

TEST_CASE("precision plan: groups of equal matrices say how they are computed, or why they stay") {
    using enum Stays;
    const Recipe none = Recipe::none, rowwise = Recipe::rowwise;
    CHECK(lines({.linear = rowwise,
                 .filter_fqns = {"layers.1", "wk"},
                 .experts = rowwise,
                 .expert_fqns = {"layers.3"}}) ==
          std::vector<Line>{{"tok_embeddings", 1, none, always, ""},
                            {"layers.0,2-3.attention.wq", 3, rowwise, no, ""},
                            {"layers.0,2-3.attention.wk", 3, none, filtered, "wk"},
                            {"layers.0,2-3.attention.wv", 3, rowwise, no, ""},
                            {"layers.0.feed_forward.w1", 1, rowwise, no, ""},
                            {"layers.1.attention.wq", 1, none, filtered, "layers.1"},
                            {"layers.1.attention.wk", 1, none, filtered, "layers.1"},
                            {"layers.1.attention.wv", 1, none, filtered, "layers.1"},
                            {"layers.1.feed_forward.w1", 1, none, filtered, "layers.1"},
                            {"layers.2-3.moe.router.gate", 2, none, always, ""},
                            {"layers.2.moe.experts.w1", 1, none, unlisted, ""},
                            {"layers.3.moe.experts.w1", 1, rowwise, no, ""},
                            {"output", 1, none, side, ""}});
    const std::vector<Line> mx = lines({.linear = Recipe::mx_floor, .fqns = {"attention"}});
    CHECK(mx[1] == Line{"layers.0-3.attention.wq", 4, Recipe::mx_floor, no, ""});
    CHECK(mx[2] == Line{"layers.0-3.attention.wk", 4, none, side, ""});
    CHECK(mx[4] == Line{"layers.0-1.feed_forward.w1", 2, none, unlisted, ""});
    CHECK(mx[6] == Line{"layers.2-3.moe.experts.w1", 2, none, unasked, ""});
    const std::vector<Line> small = lines({.linear = rowwise, .filter_fqns = {auto_filter}});
    CHECK(small[1] == Line{"layers.0-3.attention.wq", 4, none, too_small, ""});
}

TEST_CASE("precision plan: parts that no name has are found, with the nearest name") {
    Precision precision = {.linear = Recipe::rowwise,
                           .filter_fqns = {"output", auto_filter, "", "router.gate", "lm_head"},
                           .fqns = {"qkv_linear.wq"}};
    CHECK(unused(precision) == Names{});
    precision.filter_fqns = {"Output", "layers.4", "feed_foward", "atention.wq", "zzzzzzzzz", "experts"};
    precision.fqns = {"attention.w_v"};
    precision.expert_fqns = {"expert_"};  // not used
    CHECK(unused(precision) ==
          Names{"filter_fqns Output: output", "filter_fqns layers.4: layers.0",
                "filter_fqns feed_foward: feed_forward", "filter_fqns atention.wq: attention.wq",
                "filter_fqns zzzzzzzzz: ", "filter_fqns experts: ", "fqns attention.w_v: attention.wv"});
    precision = {.experts = Recipe::rowwise, .expert_fqns = {"expert_", "moe", "output"}};
    CHECK(unused(precision) == Names{"expert_fqns expert_: experts", "expert_fqns output: "});
}
