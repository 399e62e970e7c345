// SPDX-License-Identifier: Apache-2.0
// Offloading to pinned host memory on meshes gives the same bits as no offloading.
#include "gpu/gpu.hpp"
#include "support/catch.hpp"
#include "support/mesh_factors.hpp"
#include "support/part.hpp"

#include <algorithm>

using namespace coeus;
using namespace coeus::test;

TEST_CASE("GPU: offloading changes no bit on meshes") {
    const Communicator world = Communicator::world("world");
    size_t number = size_t(world.size());  // so that each number of ranks runs other cases
    const int one_of = world.size() > 2 ? 2 : 1;
    Part part("GPU: offloading on meshes", world.size(), {one_of, 4 * one_of});
    for (const MeshShape& mesh :
         meshes_of(world.size(), {axis::pp, axis::dp_replicate, axis::dp_shard, axis::cp, axis::tp})) {
        if (std::max({mesh.pp, mesh.dp_replicate, mesh.dp_shard, mesh.cp, mesh.tp}) > 2) continue;
        const std::vector<MeshVariant> variants = full_product({mesh});
        // of each mesh one combination of the other choices
        ++number;
        if (!part.takes_next()) continue;
        MeshCase c = short_case(variants, number * 89);
        c.recompute = {.mode = RecomputeOptions::Mode::blocks, .every = 1 + int64_t(number % 3 == 0)};
        c.types.master = Dtype::f32;
        c.types.compute = number % 4 == 0 ? Dtype::f32 : Dtype::bf16;
        c.types.precision.gather_in_8_bits = false;  // the masters are not on the device
        c.types.gradients_in_bf16 =
            c.types.compute == Dtype::bf16 && c.optimizer.name == "AdamW" && !c.types.precision.any();
        if (c.pipeline.timetable.has_halves()) {  // offloading and halves exclude each other
            c.pipeline.timetable = one_stage();
            c.overlap_pairs = false;
        }
        c.device = &the_gpu();
        set_order(number);
        CHECK(differs_when_offloaded(c, world) == "");
    }
}

TEST_CASE("GPU: offloading works with every schedule") {
    const Communicator world = Communicator::world("world");
    if (world.size() != 2) return;
    for (const Schedule& schedule : schedules()) {
        MeshCase c = {.mesh = {.pp = 2}, .model = tiny_config(4), .types = {Dtype::f32, Dtype::f32}};
        set_schedule(c, schedule);
        c.recompute = {.mode = RecomputeOptions::Mode::blocks};
        c.device = &the_gpu();
        CHECK(differs_when_offloaded(c, world) == "");
    }
}

TEST_CASE("GPU: offloading works with experts on several ranks") {
    const Communicator world = Communicator::world("world");
    std::vector<MeshShape> meshes = {{.dp_shard = 2, .tp = 2, .ep = 4}, {.pp = 2, .dp_shard = 2, .ep = 2}};
    if (world.size() == 2) meshes = {{.dp_shard = 2, .ep = 2}};
    if (world.size() == 8) meshes = {{.dp_shard = 4, .tp = 2, .ep = 4}};
    Part part("GPU: offloading with experts", world.size(), {1, world.size() == 4 ? 2 : 1});
    for (const MeshShape& mesh : meshes) {
        if (!part.takes_next()) continue;
        MeshCase c = {.mesh = mesh, .model = tiny_config(2), .types = {Dtype::f32, Dtype::f32}};
        set_experts(c.model, 3);
        if (mesh.pp > 1) set_schedule(c, *find_schedule("1F1B"));
        if (mesh.tp > 1) c.types = {.compute = Dtype::bf16, .gradients_in_bf16 = true};
        c.exchanges.expert_capacity = mesh.tp > 1 ? 1e9 : 0.3;
        c.recompute = {.mode = RecomputeOptions::Mode::blocks};
        c.device = &the_gpu();
        CHECK(differs_when_offloaded(c, world) == "");
    }
}
