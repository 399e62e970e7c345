// SPDX-License-Identifier: Apache-2.0
// Recomputed activations have the same bits, in every type and on every mesh.
#include "support/catch.hpp"
#include "support/mesh_factors.hpp"
#include "support/part.hpp"

using namespace coeus;
using namespace coeus::test;
using Mode = RecomputeOptions::Mode;

namespace {

struct Result {
    std::vector<double> losses;
    std::map<std::string, std::vector<double>> gradients, weights;
    bool operator==(const Result&) const = default;
};

Result two_steps(const MeshCase& c, const Mesh& mesh) {
    MeshRun run(c, mesh);
    Result result;
    for (const int64_t step : {1, 2}) {
        TestBatch batch = batch_of_step(c, uint64_t(step));
        CHECK(run.step(step, batch));
        result.losses.push_back(run.engine.scalars().loss);
    }
    result.gradients = run.whole(&Storage::gradient);
    result.weights = run.whole(&Storage::master);
    return result;
}

// Each mesh in every type, or in one of them.
void check_bits(bool every_type) {
    const Communicator world = Communicator::world("world");
    const std::vector<StateTypes> all_types = {
        {Dtype::f64, Dtype::f64}, {Dtype::f32, Dtype::f32}, {Dtype::f32, Dtype::bf16}};
    const std::vector<RecomputeOptions> modes = {{.mode = Mode::operations},
                                                 {.mode = Mode::blocks},
                                                 {.mode = Mode::blocks, .every = 2},
                                                 {.mode = Mode::budget, .budget = 0.6}};
    size_t number = 0;
    const int one_of = !every_type && world.size() > 4 ? 2 : 1;
    Part part("recomputation", world.size(), {one_of, one_of > 1 ? 4 : 1});
    for (const MeshShape& shape :
         meshes_of(world.size(), {axis::dp_replicate, axis::dp_shard, axis::cp, axis::tp})) {
        ++number;
        if (!part.takes_next()) continue;
        for (size_t t = 0; t < all_types.size(); ++t) {
            if (!every_type && t != number % all_types.size()) continue;
            const StateTypes& types = all_types[t];
            MeshCase c = {
                .mesh = shape, .model = tiny_config(), .types = types, .document_mask = shape.tp > 1};
            c.model.grouped().heads = c.model.grouped().kv_heads = 8;
            c.model.layers = 3;
            set_attention(c.model, int(number + t) % attention_kinds);
            if (number % 2 == 1) set_rope_part(c.model);
            if (number % 3 == 1) set_two_ropes(c.model);
            set_experts(c.model, int(number + t) % expert_kinds);
            set_expert_ranks(c, int(number / 2 + t) % 4);
            if (t % 2 == 0) set_halves(c);
            c.exchanges.expert_capacity = number % 2 == 0 ? 0.3 : 2;
            c.model.mtp.layers = int64_t(number / 2 + t) % 2;
            if (number % 2 == 0) c.model.z_loss_weight = 0.05;
            if (number % 3 == 1) set_scales(c.model);
            if (int(number + t) % 3 == 2) set_parallel(c.model);
            c.model.feed_forward.activation = Activation(number % 2);
            c.seq_len = 16;
            c.exchanges.context.exchange = ContextExchange(number % 3);
            set_recipe(c, int(number + 2 * t) % recipe_choices);
            set_frozen(c, int(number / 2 + t) % 3);
            c.types.gradients_in_bf16 = types.compute == Dtype::bf16 && !c.types.precision.any();
            const Mesh mesh(world.split(0, "world"), c.mesh);
            const Result kept = two_steps(c, mesh);
            for (const RecomputeOptions& mode : modes) {
                c.recompute = mode;
                INFO(c.name() << ", " << name_of(types.compute) << ", mode " << int(mode.mode));
                CHECK(two_steps(c, mesh) == kept);
            }
        }
    }
}

}  // namespace

TEST_CASE("recomputation: the same bits as without it, on every mesh") {
    check_bits(Communicator::world("world").size() <= 2);
}

TEST_CASE("soak: recomputation on every mesh in every type", "[.soak]") {
    check_bits(true);
}
