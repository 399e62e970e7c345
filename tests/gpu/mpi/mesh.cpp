// SPDX-License-Identifier: Apache-2.0
// Ranks that share a GPU and exchange tensors through host memory train as one rank on the CPU does.
#include "coeus/guards/replica_comparison.hpp"
#include "gpu/gpu.hpp"
#include "support/catch.hpp"
#include "support/mesh_factors.hpp"
#include "support/one_rank.hpp"
#include "support/part.hpp"

#include <algorithm>
#include <vector>

using namespace coeus;
using namespace coeus::test;

namespace {

// Cases on the GPU, each with its own order of the GPU's work.
class Cases {
public:
    explicit Cases(const Communicator& world) : all_(world) {}
    void add(MeshCase c, int64_t steps, const Tolerances& tolerances, uint64_t order) {
        c.device = &the_gpu();
        all_.add(c, steps, tolerances);
        orders_.push_back(order);
    }
    void check() {
        for (size_t i = 0; i < all_.size(); ++i) {
            set_order(orders_[i]);
            CHECK(all_.difference(i) == "");
        }
    }

private:
    OneRankComparison all_;
    std::vector<uint64_t> orders_;
};

}  // namespace

TEST_CASE("GPU: meshes equal one rank on the CPU") {
    const Communicator world = Communicator::world("world");
    size_t number = 0;
    const int one_of = world.size() > 2 ? 2 : 1;
    Part part("meshes of GPUs", world.size(), {one_of, world.size() > 2 ? 4 : 1});
    Cases all(world);
    for (const MeshShape& mesh :
         meshes_of(world.size(), {axis::pp, axis::dp_replicate, axis::dp_shard, axis::cp, axis::tp})) {
        // each axis alone on two ranks, then combinations of two and more
        if (std::max({mesh.pp, mesh.dp_replicate, mesh.dp_shard, mesh.cp, mesh.tp}) > 2) continue;
        const std::vector<MeshVariant> variants = full_product({mesh});
        // one case of each mesh, each time with another combination of the other choices
        ++number;
        if (!part.takes_next()) continue;
        MeshCase c = short_case(variants, number * 97);
        c.types = {Dtype::f32, Dtype::f32};  // without a recipe
        c.optimizer.eps = float32_eps;
        all.add(c, 2, in_float32, number);
    }
    all.check();
}

TEST_CASE("GPU: products in 8 bits on meshes equal those of one rank on the CPU") {
    const Communicator world = Communicator::world("world");
    // shorter sums move more numbers to the next 8-bit number
    Tolerances tolerances = in_8_bits_and_float32;
    if (error_of_8_bit_sums() > 0) tolerances.share = 0.5;
    Cases all(world);
    int number = 0;
    for (const MeshShape& mesh :
         meshes_of(world.size(), {axis::pp, axis::dp_replicate, axis::dp_shard, axis::cp, axis::tp}))
        for (int recipe = 1; recipe < recipe_choices; ++recipe) {
            // with many ranks a part of the meshes, each with another recipe
            if (world.size() > 2 && ++number % 11 > 0) continue;
            all.add(float32_case_of(mesh, recipe), 2, tolerances, uint64_t(recipe));
        }
    all.check();
}

TEST_CASE("GPU: every exchange of keys and values, with and without overlap") {
    const Communicator world = Communicator::world("world");
    if (world.size() != 2) return;
    Cases all(world);
    for (const auto exchange : {ContextExchange::all_gather, ContextExchange::ring, ContextExchange::heads}) {
        MeshCase c = {.mesh = {.cp = 2}, .model = tiny_config(), .types = {Dtype::f32, Dtype::f32}};
        c.exchanges.context.exchange = exchange;
        all.add(c, 1, in_float32, 1);
    }
    for (const auto streams : {Stream::Mode::threaded, Stream::Mode::eager}) {
        MeshCase c = {.mesh = {.tp = 2}, .model = tiny_config(), .types = {Dtype::f32, Dtype::f32}};
        c.exchanges.overlap_tokens = true;
        c.streams = streams;
        all.add(c, 1, in_float32, 1);
    }
    all.check();
}

TEST_CASE("GPU: experts on several ranks, in one round and in many") {
    const Communicator world = Communicator::world("world");
    Cases all(world);
    Part part("experts on GPUs", world.size(), {1, 2});
    int number = 0;
    for (const MeshShape& view :
         {MeshShape{.dp_shard = world.size(), .ep = world.size()},
          MeshShape{.dp_shard = world.size() / 2, .tp = 2, .ep = world.size()},
          MeshShape{.dp_shard = world.size() / 2, .tp = 2, .ep = world.size() / 2, .etp = 2}})
        for (const double capacity : {0.3, 1e9}) {
            if (view.ep == 1) continue;
            MeshCase c = {.mesh = view, .model = tiny_config(), .types = {Dtype::f32, Dtype::f32}};
            set_experts(c.model, 1 + number++ % 3);
            c.model.moe.experts = round_up(c.model.moe.experts, view.ep * c.model.moe.groups);
            c.exchanges.expert_capacity = capacity;
            c.optimizer.eps = float32_eps;
            if (part.takes_next()) all.add(c, 2, in_float32, uint64_t(number));
        }
    all.check();
}

TEST_CASE("GPU: all ranks refuse a step together, and differing replicas are found") {
    const Communicator world = Communicator::world("world");
    const std::vector<std::string> hosts(size_t(world.size()), "here");
    for (const MeshShape& shape :
         {MeshShape{.dp_replicate = world.size()}, MeshShape{.dp_shard = world.size() / 2, .tp = 2}}) {
        MeshCase c = {.mesh = shape, .model = tiny_config(), .types = {Dtype::f32, Dtype::bf16}};
        c.device = &the_gpu();
        c.guarded = true;
        const Mesh mesh(world.split(0, "world"), shape);
        MeshRun run(c, mesh);
        TestBatch batch = batch_of_step(c, 1);
        CHECK(run.step(1, batch));
        const ReplicaComparison replicas(run.engine.model().parameters(), mesh, hosts);
        CHECK(replicas.compare() == "");
        const bool last = world.rank() == world.size() - 1;
        const auto before = run.whole(&Storage::master);
        CHECK_FALSE(run.step(2, batch, {.loss = last ? 1e-3 : 1e3}));
        CHECK(run.engine.scalars().refusals == 1);
        CHECK(run.whole(&Storage::master) == before);
        for (const Storage& storage : run.engine.model().parameters().storages()) {
            if (storage.params()[0].name != "norm.weight" || !last) continue;
            uint32_t bits = 0;
            the_gpu().copy(&bits, storage.master.data, sizeof bits);
            bits ^= 1;
            the_gpu().copy(storage.master.data, &bits, sizeof bits);
        }
        CHECK(replicas.compare().find(fmt::format("{} (host here)", world.size() - 1)) != std::string::npos);
    }
}
