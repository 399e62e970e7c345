// SPDX-License-Identifier: Apache-2.0
// The memory plan of a mesh against the memory that its processes use, libraries included.
#include "coeus/device/memory.hpp"

#include "coeus/base/text.hpp"
#include "coeus/plan/memory.hpp"
#include "support/catch.hpp"
#include "support/mesh_run.hpp"
#include "support/part.hpp"
#include "support/support.hpp"

#include <algorithm>

using namespace coeus;
using namespace coeus::test;

namespace {

int64_t resident_since_start() {
    return resident_bytes() - resident_at_start;
}

// The memory of a process that has taken two steps, beyond that at its start, and the plan's.
struct Taken {
    int64_t resident, planned;
};
Taken taken_by_steps(const MeshCase& c, const Communicator& world) {
    const Mesh mesh(world.split(0, "world"), c.mesh);
    MeshRun run(c, mesh);
    for (const int64_t step : {1, 2}) {
        TestBatch batch = batch_of_step(c, uint64_t(step));
        CHECK(run.step(step, batch));
    }
    return {resident_since_start(), run.engine.plan().total()};
}

// The same layers with small tables: what libraries take for them is most of what it takes.
MeshCase with_small_tables(MeshCase c) {
    c.model.vocab = 256 * c.mesh.tp;
    c.model.feed_forward.hidden = std::min<int64_t>(c.model.feed_forward.hidden, 512);
    return c;
}

// Takes two steps. The memory that the process then has beyond that at its start must be the planned memory.
// The plan has a share for libraries, which differs from what they take by some MiB in other versions and on
// other processors. Their memory is therefore measured.
void check_taken(const MeshCase& c, const Communicator& world) {
    // libraries keep memory of earlier meshes: of that, the part beyond their planned share
    const int64_t share = library_bytes(c.types.compute, world.size());
    const int64_t left = std::max<int64_t>(0, resident_since_start() - share);
    // a mesh of ours that was not freed would take 100 MiB
    CHECK(left <= library_allowance + growth_allowance);
    const Taken small = taken_by_steps(with_small_tables(c), world);
    const int64_t libraries = std::max<int64_t>(0, small.resident - left - (small.planned - share));
    const Taken large = taken_by_steps(c, world);
    const double taken = double(large.resident - left), ours = double(large.planned - share);
    INFO(c.name() << ": " << bytes_text(taken) << " taken beside " << bytes_text(double(left))
                  << " of earlier meshes, " << bytes_text(double(large.planned)) << " planned, "
                  << bytes_text(double(share)) << " of it for libraries, which took "
                  << bytes_text(double(libraries)) << " for small tables");
    CHECK(large.planned > 100 << 20);
    CHECK(libraries <= share + library_allowance + growth_allowance);
    CHECK(taken >= 0.97 * (ours + double(std::min(share, libraries))));
    // the last term is for a sanitizer
    CHECK(taken <= 1.03 * (ours + double(std::max(share, libraries))) + double(growth_allowance - (1 << 20)));
}

}  // namespace

TEST_CASE("memory: a process of any mesh takes the planned memory") {
    const Communicator world = Communicator::world("world");
    int number = 0;
    std::vector<MeshShape> shapes = meshes_of(world.size(), {axis::dp_replicate, axis::dp_shard, axis::tp});
    if (world.size() > 1) shapes.push_back({.cp = world.size()});
    const int one_of = world.size() > 2 ? 2 : 1;
    Part part("planned memory", world.size(), {one_of, one_of > 1 ? 4 : 1});
    for (const MeshShape& shape : shapes) {
        ++number;
        if (!part.takes_next()) continue;
        // large tables and little work: 100 MiB and more, quickly trained
        MeshCase c = {.mesh = shape, .model = tiny_config()};
        c.model.dim = 256;
        c.model.grouped().heads = c.model.grouped().kv_heads = 8;
        c.model.grouped().head_dim = 32;
        c.model.vocab = 20480 * shape.tp;
        c.types = {Dtype::f32,
                   world.size() == 2 ? Dtype::bf16 : Dtype::f32};  // each type compiles its own kernels
        c.sequences = 2;
        c.seq_len = 128;
        c.recompute = {.mode = RecomputeOptions::Mode(number % 3)};
        c.gather = {.weights = number % 2 ? Keep::neighbours : Keep::all};
        c.streams = Stream::Mode::threaded;
        if (number % 2 == 0) c.optimizer.name = "Muon";
        set_attention(c.model, number % attention_kinds);
        if (number % 2 == 1) set_rope_part(c.model);
        if (number % 3 == 1) set_two_ropes(c.model);
        set_experts(c.model, number % expert_kinds);
        c.model.mtp.layers = number % 4 == 3 ? 1 : 0;
        if (number % 3 == 1) c.model.z_loss_weight = 0.05;
        if (number % 3 == 2) set_scales(c.model);
        if (number % 4 < 2) set_parallel(c.model);
        c.model.feed_forward.activation = Activation(number / 2 % 2);
        check_taken(c, world);
    }
}

TEST_CASE("memory: a process of a pipeline takes the planned memory") {
    const Communicator world = Communicator::world("world");
    if (world.size() != 2 && world.size() != 4) return;
    std::vector<MeshShape> shapes = {{.pp = world.size()}};
    if (world.size() == 4) shapes.push_back({.pp = 2, .dp_shard = 2});
    for (const MeshShape& shape : shapes) {
        // wide layers, so that a stage without a table also has 100 MiB and more
        MeshCase c = {.mesh = shape, .model = tiny_config()};
        c.model.dim = 256;
        c.model.grouped().heads = c.model.grouped().kv_heads = 8;
        c.model.grouped().head_dim = 32;
        c.model.feed_forward.hidden = 6144;
        c.model.layers = 2 * shape.pp;
        c.model.vocab = 4096;
        c.types = {Dtype::f32, world.size() == 2 ? Dtype::bf16 : Dtype::f32};
        c.model.mtp.layers = shape.dp_shard > 1 ? 1 : 0;
        c.pipeline = pipeline_of("1F1B", shape.pp, 2 * shape.pp, 1, c.model);
        c.sequences = 2 * shape.pp;
        c.seq_len = 64;
        c.gather = {.weights = Keep::all, .gradients = Keep::all};
        c.streams = Stream::Mode::threaded;
        check_taken(c, world);
    }
}
