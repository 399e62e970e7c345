// SPDX-License-Identifier: Apache-2.0
// Families that a program registers: refused ones, and one with its own kind of block, which cannot be
// written as a Hugging Face folder.
#include "../../../examples/custom_model/squared_relu.hpp"
#include "coeus/models/build_block.hpp"
#include "coeus/models/decoder.hpp"
#include "coeus/models/family.hpp"
#include "coeus/models/hub_model.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"

#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

// A block that is only a feed-forward layer, with the matrices up and down.
std::unique_ptr<Block> build_own(const Declare& declare, const PositionTables&, Output output) {
    const int64_t dim = declare.model().dim, hidden = declare.model().feed_forward.hidden;
    std::vector<ResidualBlock::Part> parts;
    parts.push_back(build_part(declare, "ffn_norm", output, [&](LinearInput input) {
        Parameters& all = declare.parameters();
        const Storage& up = all.add(declare.weight("up", {hidden, dim}, WeightRole::up, Split::rows));
        const Storage& down = all.add(declare.weight("down", {dim, hidden}, WeightRole::down, Split::cols));
        return std::make_unique<primer::SquaredReluLayer>(up, down, input);
    }));
    return std::make_unique<ResidualBlock>(std::move(parts));
}

ModelFamily family_named(const std::string& name) {
    DecoderConfig flavor = tiny_config();
    flavor.family = "";
    flavor.flavor = "tiny";
    return {.name = name, .flavors = {flavor}, .init = usual_init, .own_block = build_own};
}

}  // namespace

TEST_CASE("a family is refused if its name is taken or it is incomplete") {
    for (const char* taken : {"llama3", "flux"})
        CHECK_THROWS_WITH(register_family(family_named(taken)),
                          Contains(fmt::format(
                              "a model family cannot be registered as \"{}\": this name is taken, as are {}",
                              taken, model_families().front().name)));
    ModelFamily family = family_named("");
    CHECK_THROWS_AS(register_family(family), LogicError);
    family = family_named("no_flavor");
    family.flavors.clear();
    CHECK_THROWS_AS(register_family(family), LogicError);
    family = family_named("half_a_hub");
    family.hub_ignores = usually_ignored_in_hub;
    CHECK_THROWS_WITH(register_family(family), Contains("all three functions for Hugging Face folders"));
    family = family_named("odd_heads");
    family.flavors[0].grouped().kv_heads = 3;
    CHECK_THROWS_WITH(register_family(family), Contains("model.n_kv_heads = 3: must divide"));
    CHECK_THROWS_AS(find_family("odd_heads"), ConfigError);
}

TEST_CASE("a family whose block cannot be built is not registered, whatever the error is") {
    ModelFamily family = family_named("failing");
    family.own_block = [](const Declare&, const PositionTables&, Output) -> std::unique_ptr<Block> {
        throw std::runtime_error("no such matrix");
    };
    CHECK_THROWS_WITH(register_family(family), "no such matrix");
    CHECK_THROWS_AS(find_family("failing"), ConfigError);
    register_family(family_named("failing"));  // the name is free
    CHECK(find_family("failing").name == "failing");
}

TEST_CASE("a registered family is found, counted as it declares, and has no form in Hugging Face folders") {
    register_family(family_named("own"));
    CHECK_THROWS_WITH(register_family(family_named("own")), Contains("this name is taken"));
    const DecoderConfig& config = find_flavor(find_family("own"), "tiny");
    CHECK(config.family == "own");
    // a norm and two matrices per layer; table, norm and output
    const int64_t layer = 24 + 2 * 24 * 20, all = 2 * layer + 2 * 37 * 24 + 24;
    CHECK(config.parameters() == all);
    CHECK(Decoder(config, {}, 1).parameters().count() == all);
    DecoderConfig usual = config;
    usual.family = "llama3";
    CHECK(usual.parameters() > all);
    CHECK_THROWS_WITH(hub_config_of(config),
                      "model.name = \"own\": this family has no form in Hugging Face folders");
}

TEST_CASE("a registered family: each parameter asks for the initial values of a layer that the model has") {
    static std::vector<int64_t> asked;
    ModelFamily family = family_named("by_layer");
    family.init = [](WeightRole role, int64_t layer, const DecoderConfig& config) {
        asked.push_back(layer);
        return usual_init(role, layer, config);
    };
    register_family(family);
    DecoderConfig config = find_flavor(find_family("by_layer"), "tiny");
    config.mtp.layers = 1;
    CHECK(config.parameters() > 0);
    CHECK(Decoder(config, {}, 1).parameters().count() > 0);
    REQUIRE(config.layers == 2);
    CHECK(std::set(asked.begin(), asked.end()) == std::set<int64_t>{0, 1});
}

TEST_CASE("a registered family: recomputation changes no bit") {
    register_family(family_named("recomputed"));
    const DecoderConfig config = find_flavor(find_family("recomputed"), "tiny");
    const StateTypes types = {Dtype::f64, Dtype::f64};
    TestModel kept(config, types, {3, 5}),
        again(config, types, {3, 5}, 1, 1, {Recompute::operations, Recompute::block});
    for (TestModel* model : {&kept, &again}) {
        TestBatch batch(3, 5, config.vocab);
        model->zero_gradients();
        model->scalars.loss_scale = 1.0 / 15;
        model->forward_backward(batch);
    }
    CHECK(kept.scalars.loss > 0);
    CHECK(kept.scalars.loss == again.scalars.loss);
    CHECK(same_bits(kept.parameters().gradients(), again.parameters().gradients()));
}
