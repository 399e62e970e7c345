// SPDX-License-Identifier: Apache-2.0
// Offloading to pinned host memory on meshes: the same bits as without.
#include "gpu/gpu.hpp"
#include "support/catch.hpp"
#include "support/mesh_factors.hpp"

#include <algorithm>

using namespace coeus;
using namespace coeus::test;

TEST_CASE("GPU: offloading leaves every bit as it is on every mesh") {
    const Communicator world = Communicator::world("world");
    size_t number = size_t(world.size());  // other cases on more ranks
    for (const MeshShape& mesh :
         meshes_of(world.size(), {axis::pp, axis::dp_replicate, axis::dp_shard, axis::cp, axis::tp})) {
        if (std::max({mesh.pp, mesh.dp_replicate, mesh.dp_shard, mesh.cp, mesh.tp}) > 2) continue;
        const std::vector<MeshVariant> variants = full_product({mesh});
        // of each mesh one choice of all that can be combined; of many meshes every second
        if (++number % 2 == 0 && world.size() > 2) continue;
        MeshCase c = variants[number * 89 % variants.size()].mesh_case();
        c.recompute = {.mode = RecomputeOptions::Mode::blocks, .every = 1 + int64_t(number % 3 == 0)};
        c.types = {Dtype::f32, number % 4 == 0 ? Dtype::f32 : Dtype::bf16};
        c.device = &the_gpu();
        set_order(number);
        CHECK(differs_when_offloaded(c, world) == "");
    }
}

TEST_CASE("GPU: offloading goes with every schedule") {
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
