// SPDX-License-Identifier: Apache-2.0
// The next tokens of every family on meshes are those of one rank, in float64. The models are those of
// golden/models and golden/families, with weights of our own.
#include "coeus/generate/generator.hpp"
#include "coeus/models/hub_model.hpp"
#include "coeus/models/model_config.hpp"
#include "support/catch.hpp"
#include "support/golden.hpp"
#include "support/mesh_run.hpp"
#include "support/support.hpp"

#include <algorithm>

using namespace coeus;
using namespace coeus::test;

namespace {

constexpr int64_t room = 12, prompt_tokens = 7;

// The tokens after a prompt, always the most likely one, and the logits of each.
struct Continued {
    std::vector<int32_t> tokens;
    std::vector<std::vector<double>> logits;
};

// All ranks have the same text, and rank `from` tells the tokens of the one that has the logits.
Continued continued(const DecoderConfig& model, const Mesh& mesh) {
    Generator generator(model, Dtype::f64, room, 1, {.mesh = mesh});
    generator.decoder().parameters().initialise(7, 1);
    generator.weights_changed();
    Continued result;
    const auto next = [&](const Tensor& logits) {
        const std::vector<double> row = logits ? values(logits) : std::vector<double>{};
        const int64_t best = logits ? std::ranges::max_element(row) - row.begin() : -1;
        result.logits.push_back(row);
        result.tokens.push_back(int32_t(mesh.world().all_reduce(best, Reduce::max)));
    };
    next(generator.read(0, TestBatch(1, prompt_tokens, model.vocab).tokens));
    while (int64_t(result.tokens.size()) < room - prompt_tokens) {
        const Generator::Next token[] = {{0, result.tokens.back()}};
        next(generator.append(token));
    }
    return result;
}

// On a mesh that the model allows; data ranks divide its experts.
void compare(const DecoderConfig& model, MeshShape shape, const Communicator& world) {
    if (model.has_experts() && model.moe.experts % shape.dp_shard == 0) shape.ep = shape.dp_shard;
    const DividingRanks ranks = {
        .tensor = shape.tp, .context = shape.cp, .expert = shape.ep, .context_by_heads = true};
    if (!ModelConfig(model)->refusal(ranks).empty()) return;
    CAPTURE(shape.text());
    const Continued should = continued(model, mesh_of_one());
    const Continued are = continued(model, Mesh(world.split(0, "a mesh of ranks that generate"), shape));
    CHECK(are.tokens == should.tokens);
    for (size_t i = 0; i < are.logits.size(); ++i)
        if (!are.logits[i].empty()) CHECK(normalised_error(are.logits[i], should.logits[i]) <= 1e-12);
}

}  // namespace

TEST_CASE("generation: the next tokens of every family on every axis are those of one rank") {
    const Communicator world = Communicator::world("world");
    if (world.size() == 1) return;
    std::vector<GoldenCase> cases;
    for (const std::string& name : golden_models()) {
        const std::string folder = golden(name);
        cases.push_back({.name = name,
                         .refusal = [folder] { return unknown_architecture(folder); },
                         .compare =
                             [folder, &world] {
                                 const DecoderConfig model = model_from_hub(folder);
                                 for (const Axis axis : {axis::pp, axis::dp_shard, axis::cp, axis::tp})
                                     for (const MeshShape& shape : meshes_of(world.size(), {axis}))
                                         compare(model, shape, world);
                             }});
    }
    compare_golden(cases);
}
