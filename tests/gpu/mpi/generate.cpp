// SPDX-License-Identifier: Apache-2.0
// Ranks that share a GPU generate with a divided cache: their logits are those of one rank on the CPU.
#include "coeus/generate/generator.hpp"
#include "gpu/gpu.hpp"
#include "support/catch.hpp"
#include "support/mesh_factors.hpp"
#include "support/support.hpp"

using namespace coeus;
using namespace coeus::test;

namespace {

// The logits after a prompt, and after each of two further tokens; empty on ranks without them.
std::vector<std::vector<double>> logits_with(const DecoderConfig& model, const GeneratorPlace& place) {
    Generator generator(model, Dtype::f32, 9, 2, place);
    Exec exec(place.device);
    const Kernels& kernels = kernels_of(place.device.backend());
    generator.decoder().parameters().initialise(exec, kernels, 7);
    generator.weights_changed();
    const std::vector<int32_t> tokens = TestBatch(1, 7, model.vocab).tokens;
    std::vector<std::vector<double>> all;
    const auto keep = [&](const Tensor& logits) {
        all.push_back(logits ? values(logits) : std::vector<double>{});
    };
    keep(generator.read(1, std::span(tokens).first(5)));
    for (size_t i = 5; i < 7; ++i) {
        const Generator::Next next[] = {{1, tokens[i]}};
        keep(generator.append(next));
    }
    return all;
}

}  // namespace

TEST_CASE("GPU: generation on a mesh has the logits of one rank on the CPU") {
    const Communicator world = Communicator::world("world");
    const int ranks = world.size();
    if (ranks > 2) return;  // the emulation takes long
    MeshCase c = {.model = tiny_config(3)};
    c.model.grouped().heads = 8;
    c.model.grouped().kv_heads = 4;
    c.model.grouped().head_dim = 4;
    set_experts(c.model, 1);
    const auto should = logits_with(c.model, {});
    for (const MeshShape& shape : {MeshShape{.tp = ranks}, MeshShape{.pp = ranks}, MeshShape{.cp = ranks},
                                   MeshShape{.dp_shard = ranks, .ep = ranks}}) {
        CAPTURE(shape.text());
        const Mesh mesh(world.split(0, "a mesh of GPUs"), shape);
        const auto are = logits_with(c.model, {.device = the_gpu(), .mesh = mesh});
        REQUIRE(are.size() == should.size());
        for (size_t i = 0; i < are.size(); ++i) {
            // a pipeline's last rank and one of the context-parallel ranks have them; data ranks each
            const int64_t with_logits = world.all_reduce(int64_t(!are[i].empty()), Reduce::sum);
            CHECK(with_logits == shape.size(axis::dp) * shape.tp);
            if (!are[i].empty()) CHECK(normalised_error(are[i], should[i]) <= 1e-5);
        }
    }
}
