// SPDX-License-Identifier: Apache-2.0
// Every mesh takes the steps of one rank: loss, gradient norm, every gradient by name, every weight, in
// float64.
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
    int number = 0;
    for (const MeshShape& mesh : meshes_of(world.size(), {pp, dp_replicate, dp_shard, cp, tp})) {
        ++number;
        MeshCase c = {.mesh = mesh, .model = model_for(mesh, number % 2 == 0)};
        c.sequences = 1 + number % 3 / 2;
        c.micro_batches = 1 + number % 2;
        c.seq_len = 6 * mesh.cp * mesh.tp;
        if (mesh.pp > 1) set_pipeline(c, number);
        c.document_mask = number % 3 == 0;
        c.gather.weights = number % 2 ? Keep::neighbours : Keep::all;
        c.gather.gradients = number % 3 ? Keep::neighbours : Keep::all;
        c.gather.streams = number % 4 < 2 ? Stream::Mode::threaded : Stream::Mode::eager;
        c.split_loss = number % 3 != 1;
        c.recompute = {.mode = RecomputeOptions::Mode(number % 4), .every = 2, .budget = 0.3};
        CHECK(differs_from_one_rank(c, world) == "");
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
                c.context = {exchange, balancing};
                CHECK(differs_from_one_rank(c, world, 2) == "");
            }
    }
}
