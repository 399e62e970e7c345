// SPDX-License-Identifier: Apache-2.0
// Ranks that share a GPU and exchange tensors through host memory train as one rank on the CPU does.
#include "coeus/guards/replica_comparison.hpp"
#include "gpu/gpu.hpp"
#include "support/catch.hpp"
#include "support/mesh_factors.hpp"
#include "support/part.hpp"

#include <algorithm>

using namespace coeus;
using namespace coeus::test;

TEST_CASE("GPU: meshes equal one rank on the CPU") {
    const Communicator world = Communicator::world("world");
    size_t number = 0;
    const int one_of = world.size() > 2 ? 2 : 1;
    Part part("meshes of GPUs", world.size(), {one_of, one_of});
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
        c.device = &the_gpu();
        set_order(number);
        CHECK(differs_from_one_rank(c, world, 2, in_float32) == "");
    }
}

TEST_CASE("GPU: products in 8 bits on meshes equal those of one rank on the CPU") {
    const Communicator world = Communicator::world("world");
    // shorter sums move more numbers to the next 8-bit number
    Tolerances tolerances = in_8_bits_and_float32;
    if (error_of_8_bit_sums() > 0) tolerances.share = 0.5;
    int number = 0;
    for (const MeshShape& mesh :
         meshes_of(world.size(), {axis::pp, axis::dp_replicate, axis::dp_shard, axis::cp, axis::tp}))
        for (int recipe = 1; recipe < recipe_choices; ++recipe) {
            // with many ranks a part of the meshes, each with another recipe
            if (world.size() > 2 && ++number % 11 > 0) continue;
            MeshCase c = float32_case_of(mesh, recipe);
            c.device = &the_gpu();
            set_order(uint64_t(recipe));
            CHECK(differs_from_one_rank(c, world, 2, tolerances) == "");
        }
}

TEST_CASE("GPU: every exchange of keys and values, with and without overlap") {
    const Communicator world = Communicator::world("world");
    if (world.size() != 2) return;
    for (const auto exchange : {ContextExchange::all_gather, ContextExchange::ring, ContextExchange::heads}) {
        MeshCase c = {.mesh = {.cp = 2}, .model = tiny_config(), .types = {Dtype::f32, Dtype::f32}};
        c.exchanges.context.exchange = exchange;
        c.device = &the_gpu();
        CHECK(differs_from_one_rank(c, world, 1, in_float32) == "");
    }
    for (const auto streams : {Stream::Mode::threaded, Stream::Mode::eager}) {
        MeshCase c = {.mesh = {.tp = 2}, .model = tiny_config(), .types = {Dtype::f32, Dtype::f32}};
        c.exchanges.overlap_tokens = true;
        c.streams = streams;
        c.device = &the_gpu();
        CHECK(differs_from_one_rank(c, world, 1, in_float32) == "");
    }
}

TEST_CASE("GPU: experts on several ranks, in one round and in many") {
    const Communicator world = Communicator::world("world");
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
            c.device = &the_gpu();
            CHECK(differs_from_one_rank(c, world, 2, in_float32) == "");
        }
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
        const ReplicaComparison replicas(run.engine.decoder().parameters(), mesh, hosts);
        CHECK(replicas.compare() == "");
        const bool last = world.rank() == world.size() - 1;
        const auto before = run.whole(&Storage::master);
        CHECK_FALSE(run.step(2, batch, {.loss = last ? 1e-3 : 1e3}));
        CHECK(run.engine.scalars().refusals == 1);
        CHECK(run.whole(&Storage::master) == before);
        for (const Storage& storage : run.engine.decoder().parameters().storages()) {
            if (storage.params()[0].name != "norm.weight" || !last) continue;
            uint32_t bits = 0;
            the_gpu().copy(&bits, storage.master.data, sizeof bits);
            bits ^= 1;
            the_gpu().copy(storage.master.data, &bits, sizeof bits);
        }
        CHECK(replicas.compare().find(fmt::format("{} (host here)", world.size() - 1)) != std::string::npos);
    }
}
