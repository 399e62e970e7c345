// SPDX-License-Identifier: Apache-2.0
// If units take turns in the memory of gathered weights and gradients, a snapshot still distinguishes them.
#include "coeus/observe/memory_snapshot.hpp"

#include "support/catch.hpp"
#include "support/mesh_run.hpp"

#include <algorithm>

using namespace coeus;
using namespace coeus::test;

TEST_CASE("snapshot: names on a mesh are those on one rank") {
    const Communicator world = Communicator::world("world");
    const auto products = [](const MeshCase& c, const Mesh& mesh) {
        MeshRun run(c, mesh);
        TestBatch batch = batch_of_step(c, 1);
        MemorySnapshot snapshot(run.engine, 100000);
        CHECK(run.step(1, batch));
        std::vector<std::string> calls = snapshot.calls();
        std::erase_if(calls, [](const std::string& call) { return !call.starts_with("gemm"); });
        return calls;
    };
    MeshCase c = {.mesh = {.dp_shard = world.size()}, .model = tiny_config()};
    c.model.layers = 5;
    c.local_batches = 2;
    MeshCase alone = c;
    alone.mesh = {};
    const auto expected = products(alone, mesh_of_one());
    CHECK(expected.size() > 100);
    CHECK(products(c, Mesh(world.split(0, "world"), c.mesh)) == expected);
}
