// SPDX-License-Identifier: Apache-2.0
// Every mesh takes the steps of one rank: loss, gradient norm, every gradient by name, every weight, in
// float64.
#include "coeus/base/random.hpp"
#include "support/mesh_run.hpp"

#include <catch2/catch.hpp>

using namespace coeus;
using namespace coeus::test;

namespace {

// Sizes that no degree divides evenly but where they must.
DecoderConfig model_for(const MeshShape& mesh, bool tied) {
    DecoderConfig model = tiny_config();
    model.heads = 8;
    model.kv_heads = mesh.tp * mesh.cp > 4 ? 8 : 4;
    model.head_dim = 4;
    model.ffn_hidden = 23;
    model.layers = 3;
    model.tied = tied;
    return model;
}

// A schedule in turn, with twice as many micro-batches as ranks, which all take.
void set_pipeline(MeshCase& c, int number) {
    const Schedule& schedule = schedules()[size_t(number) % schedules().size()];
    const int ranks = c.mesh.pp, virtual_stages = schedule.default_virtual_stages;
    c.model.layers = std::max(c.model.layers, int64_t(ranks * virtual_stages - 1));
    c.pipeline = pipeline_of(schedule.name, ranks, 2 * ranks, virtual_stages, c.model);
    c.sequences = 2 * ranks;
}

}  // namespace

TEST_CASE("mesh: every factorisation equals one rank") {
    const Communicator world = Communicator::world("world");
    // every factor drawn by itself, so that no two go together
    const RandomStream random(11, "cases of meshes");
    uint64_t draws = 0;
    const auto draw = [&](int choices) { return int(random.u64(draws++) % uint64_t(choices)); };
    for (const MeshShape& mesh : meshes_of(world.size(), {pp, dp_replicate, dp_shard, cp, tp})) {
        MeshCase c = {.mesh = mesh, .model = model_for(mesh, draw(2) == 0)};
        c.sequences = 1 + draw(2);
        c.micro_batches = 1 + draw(2);
        c.seq_len = 6 * mesh.cp * mesh.tp;
        if (mesh.pp > 1) set_pipeline(c, draw(7));
        c.document_mask = draw(2) == 0;
        c.gather.weights = draw(2) ? Keep::neighbours : Keep::all;
        c.gather.gradients = draw(2) ? Keep::neighbours : Keep::all;
        c.streams = draw(3) ? Stream::Mode::threaded : Stream::Mode::eager;
        c.exchanges.split_loss = draw(3) != 0;
        c.exchanges.overlap_tokens = draw(2) == 0;
        c.recompute = {.mode = RecomputeOptions::Mode(draw(4)), .every = 2, .budget = 0.3};
        CHECK(differs_from_one_rank(c, world) == "");
    }
}

TEST_CASE("mesh: a tied table with accumulation, however gathered and summed") {
    const Communicator world = Communicator::world("world");
    for (const MeshShape& mesh : meshes_of(world.size(), {dp_replicate, dp_shard}))
        for (const Keep keep : {Keep::neighbours, Keep::all})
            for (const auto streams : {Stream::Mode::threaded, Stream::Mode::eager}) {
                MeshCase c = {.mesh = mesh, .model = model_for(mesh, true), .micro_batches = 2, .seq_len = 6};
                c.gather = {.weights = keep, .gradients = keep};
                c.streams = streams;
                CHECK(differs_from_one_rank(c, world) == "");
            }
}

TEST_CASE("mesh: tensor-parallel ranks with uneven parts do the same in the same order") {
    const Communicator world = Communicator::world("world");
    if (world.size() != 2 && world.size() != 4) return;
    const MeshShape mesh = {.tp = world.size()};
    // the first rank's part of the logits is wide enough for smaller chunks than the last one's
    MeshCase chunks = {.mesh = mesh, .model = model_for(mesh, false), .seq_len = 640};
    chunks.model.vocab = world.size() * 3277 - 1;
    chunks.model.layers = 1;
    CHECK(differs_from_one_rank(chunks, world, 1) == "");
    // the first rank's frame is larger than the last one's
    for (const double budget : {0.3, 0.404, 0.41, 0.416, 0.5}) {
        MeshCase uneven = {.mesh = mesh, .model = model_for(mesh, false), .seq_len = 16};
        uneven.model.layers = 8;
        uneven.model.ffn_hidden = 9;
        uneven.recompute = {.mode = RecomputeOptions::Mode::budget, .budget = budget};
        CHECK(differs_from_one_rank(uneven, world, 1) == "");
    }
}

TEST_CASE("mesh: overlapped tokens give what one collective gives") {
    const Communicator world = Communicator::world("world");
    for (const MeshShape& mesh : meshes_of(world.size(), {pp, cp, tp}))
        for (const auto streams : {Stream::Mode::threaded, Stream::Mode::eager})
            for (const auto mode : {RecomputeOptions::Mode::nothing, RecomputeOptions::Mode::operations}) {
                if (mesh.tp == 1) continue;
                MeshCase c = {.mesh = mesh, .model = model_for(mesh, false)};
                c.seq_len = 4 * mesh.cp * mesh.tp;
                if (mesh.pp > 1) set_pipeline(c, 4);  // zero bubble: weight gradients come later
                c.exchanges.overlap_tokens = true;
                c.streams = streams;
                c.recompute = {.mode = mode};
                CHECK(differs_from_one_rank(c, world, 2) == "");
            }
}

TEST_CASE("mesh: every exchange of keys and values equals one rank") {
    const Communicator world = Communicator::world("world");
    int number = 0;
    for (const MeshShape& mesh : meshes_of(world.size(), {dp_shard, cp, tp})) {
        if (mesh.cp == 1) continue;
        for (const auto exchange :
             {ContextExchange::all_gather, ContextExchange::ring, ContextExchange::heads})
            for (const auto balancing : {Balancing::none, Balancing::head_tail}) {
                ++number;
                MeshCase c = {.mesh = mesh, .model = model_for(mesh, false)};
                c.sequences = 1 + number % 2;
                c.seq_len = 2 * (1 + number % 3) * mesh.cp * mesh.tp;
                c.document_mask = number % 4 < 2;
                c.exchanges.context = {exchange, balancing};
                CHECK(differs_from_one_rank(c, world, 2) == "");
            }
    }
}
