// SPDX-License-Identifier: Apache-2.0
// Experts that are divided over ranks take the steps of one rank: loss, gradients, loads, biases, weights.
#include "coeus/base/random.hpp"
#include "support/catch.hpp"
#include "support/mesh_factors.hpp"
#include "support/one_rank.hpp"
#include "support/part.hpp"

#include <algorithm>
#include <array>
#include <iterator>

using namespace coeus;
using namespace coeus::test;

namespace {

// Every way to divide experts over the ranks of a mesh.
std::vector<MeshShape> views_of(const MeshShape& mesh) {
    std::vector<MeshShape> all;
    const int block = mesh.size(axis::fsdp | axis::tp);
    for (int ep = 2; ep <= block; ++ep)
        for (int etp = 1; etp <= mesh.tp; etp += std::max(1, mesh.tp - 1))
            if (block % (ep * etp) == 0) {
                all.push_back(mesh);
                all.back().ep = ep;
                all.back().etp = etp;
            }
    return all;
}

constexpr double capacities[] = {0.3, 1.0, 1e9};

// Each division with every capacity, or with one of them.
void check_divisions(bool every_capacity) {
    const Communicator world = Communicator::world("world");
    // each factor is drawn by itself, so that all pairs of choices occur
    const RandomStream random(11, "experts on several ranks");
    uint64_t drawn = 0;
    size_t number = 0;
    OneRankComparison all(world);
    Part part("divisions of experts", world.size(), one_of_repeated(world.size()));
    const auto draw = [&](int choices) { return int(random.u64(drawn++) % uint64_t(choices)); };
    for (const MeshShape& mesh :
         meshes_of(world.size(), {axis::dp_replicate, axis::dp_shard, axis::cp, axis::tp}))
        for (const MeshShape& view : views_of(mesh)) {
            const double one = capacities[number++ % std::size(capacities)];
            for (const double capacity : capacities) {
                if (!every_capacity && capacity != one) continue;
                MeshCase c = {.mesh = view, .model = tiny_config()};
                c.model.grouped().heads = c.model.grouped().kv_heads = 8;
                c.model.grouped().head_dim = 4;
                set_experts(c.model, 1 + draw(expert_kinds - 1));
                c.model.moe.experts = round_up(c.model.moe.experts, view.ep * c.model.moe.groups);
                c.seq_len = 4 * mesh.cp * mesh.tp;
                c.sequences = 1 + draw(2);
                c.local_batches = 1 + draw(2);
                c.exchanges.expert_capacity = capacity;
                c.recompute = {.mode = RecomputeOptions::Mode(draw(4)), .every = 1, .budget = 0.3};
                c.optimizer.name = draw(3) == 0 ? "Muon" : "AdamW";
                if (part.takes_next()) all.add(c, 2);
            }
        }
    all.check();
}

}  // namespace

TEST_CASE("experts: every division over ranks, with any capacity, equals one rank") {
    check_divisions(Communicator::world("world").size() <= 4);
}

// A local batch has fewer rows than there are experts, on the mesh and on one rank.
TEST_CASE("experts: those without rows have no gradient, whatever was in its memory") {
    const Communicator world = Communicator::world("world");
    size_t number = 0;
    const int one_of = world.size() > 4 ? 4 : 1;
    Part part("experts without rows", world.size(), {one_of, one_of});
    OneRankComparison all(world);
    for (const MeshShape& mesh : meshes_of(world.size(), {axis::pp, axis::dp_shard, axis::cp, axis::tp})) {
        std::vector<MeshShape> views = views_of(mesh);
        views.push_back(mesh);
        for (const MeshShape& view : views) {
            if (!part.takes_next()) {
                ++number;
                continue;
            }
            MeshCase c = {.mesh = view, .model = tiny_config()};
            c.model.grouped().heads = c.model.grouped().kv_heads = 8;
            c.model.grouped().head_dim = 4;
            set_experts(c.model, 1 + int(number) % (expert_kinds - 1));
            c.seq_len = 2 * mesh.cp * mesh.tp;
            if (mesh.pp > 1) set_schedule(c, schedules()[number % schedules().size()]);
            const int64_t rows = c.sequences * c.seq_len * c.model.moe.top_k;
            c.model.moe.experts = round_up(2 * rows, view.ep * c.model.moe.groups);
            c.local_batches = 1 + int64_t(number % 2);
            c.gather.gradients = Keep(number / 2 % 2);
            c.exchanges.expert_capacity = capacities[number++ % std::size(capacities)];
            all.add(c, 2);
            // in 8 bits
            if (mesh.pp > 1 || mesh.cp > 1 || view.ep > 1) continue;
            c.model.dim = 32;
            c.model.moe.hidden = 16 * mesh.tp;
            if (c.model.moe.shared_hidden > 0) c.model.moe.shared_hidden = 16 * mesh.tp;
            c.types.precision = {.experts = Recipe::rowwise, .expert_fqns = {"experts"}};
            all.add(c, 1, {1e-11, 1e-5, 1e-5});
        }
    }
    all.check();
}

TEST_CASE("soak: every division of experts with every capacity equals one rank", "[.soak]") {
    check_divisions(true);
}

// The scales of columns belong to the rows that an expert gets in a round on its rank, so a few numbers that
// are small in their column differ.
TEST_CASE("experts: 8-bit products on several ranks equal those of one rank within their roundings") {
    const Communicator world = Communicator::world("world");
    OneRankComparison all(world);
    Part part("experts in 8 bits", world.size(), {1, world.size() > 4 ? 4 : 1});
    size_t number = 0;
    for (const MeshShape& mesh : meshes_of(world.size(), {axis::dp_shard, axis::cp, axis::tp}))
        for (const MeshShape& view : views_of(mesh)) {
            MeshCase c = {.mesh = view, .model = tiny_config()};
            c.model.dim = 32;
            c.model.grouped().heads = c.model.grouped().kv_heads = 8;
            c.model.grouped().head_dim = 4;
            set_experts(c.model, 1 + int(number) % (expert_kinds - 1));
            c.model.moe.experts = round_up(c.model.moe.experts, view.ep * c.model.moe.groups);
            c.model.moe.hidden = 32 * mesh.tp;
            if (c.model.moe.shared_hidden > 0) c.model.moe.shared_hidden = 32 * mesh.tp;
            c.types.precision = {.experts = number % 3 == 2 ? Recipe::mx_floor : Recipe::rowwise,
                                 .expert_fqns = {"experts"}};
            c.seq_len = 8 * mesh.cp * mesh.tp;
            c.exchanges.expert_capacity = capacities[number++ % std::size(capacities)];
            c.optimizer.eps = float32_eps;
            // which tokens share a block of MX depends on the ranks, and so does the rounding of all of them
            const bool in_blocks = c.types.precision.experts == Recipe::mx_floor;
            if (part.takes_next())
                all.add(c, 1, in_blocks ? Tolerances{1e-11, 1e-3, 5e-2} : Tolerances{1e-11, 1e-5, 1e-5});
        }
    all.check();
}

TEST_CASE("experts: a pair that takes turns computes the bits of one after the other") {
    const Communicator world = Communicator::world("world");
    // on 8 ranks, groups of tensor-parallel or context-parallel ranks have several groups that divide
    // experts, with different numbers of rounds
    std::vector<MeshShape> views;
    if (world.size() == 4)
        views = {{.pp = 2, .dp_shard = 2, .ep = 2}, {.pp = 2, .tp = 2, .ep = 2}, {.pp = 2, .cp = 2, .ep = 2}};
    if (world.size() == 8)
        views = {
            {.pp = 2, .tp = 4, .ep = 2}, {.pp = 2, .cp = 2, .tp = 2, .ep = 2}, {.pp = 2, .cp = 4, .ep = 2}};
    const RandomStream random(12, "experts of pairs");
    uint64_t drawn = 0;
    const auto draw = [&](int choices) { return int(random.u64(drawn++) % uint64_t(choices)); };
    bool rounds_differ = false;
    OneRankComparison all(world);
    for (const Schedule& schedule : schedules())
        for (const MeshShape& view : views)
            for (const auto mode : {Stream::Mode::eager, Stream::Mode::threaded, Stream::Mode::deferred}) {
                if (world.size() == 8 && mode != Stream::Mode::threaded) continue;
                MeshCase c = {.mesh = view, .model = tiny_config()};
                c.model.grouped().heads = c.model.grouped().kv_heads = 8;
                c.model.grouped().head_dim = 4;
                c.seq_len = 4 * view.cp * view.tp;
                if (world.size() == 8) c.model.layers = 8;  // two in each stage
                set_experts(c.model, 1 + draw(expert_kinds - 1));
                c.model.moe.experts = round_up(c.model.moe.experts, 2 * c.model.moe.groups);
                set_schedule(c, schedule);
                if (!c.pipeline.timetable.has_pairs()) continue;
                c.local_batches = 2;
                set_mtp(c, draw(2));
                c.streams = mode;
                c.gather = {.weights = Keep::all, .gradients = Keep::all};
                c.recompute = {.mode = RecomputeOptions::Mode(draw(4)), .every = 1, .budget = 0.3};
                constexpr double some[] = {0.3, 1, 1e9};
                c.exchanges.expert_capacity = world.size() == 8 ? 0.3 : some[draw(3)];
                CAPTURE(c.name());
                MeshCase in_turn = c;
                in_turn.overlap_pairs = false;
                const Mesh mesh(world.split(0, "world"), c.mesh);
                MeshRun a(c, mesh), b(in_turn, mesh);
                REQUIRE(a.engine.options().overlap_pairs);
                for (const int64_t step : {1, 2}) {
                    TestBatch batch = batch_of_step(c, uint64_t(step));
                    CHECK(a.step(step, batch));
                    CHECK(b.step(step, batch));
                    CHECK(a.engine.scalars().loss == b.engine.scalars().loss);
                    CHECK(a.engine.counts() == b.engine.counts());
                    CHECK(a.whole(&Storage::gradient) == b.whole(&Storage::gradient));
                    CHECK(a.engine.extra_rounds() == b.engine.extra_rounds());
                    for (const unsigned axis : {unsigned(axis::cp), unsigned(axis::tp)}) {
                        const int64_t here = a.engine.extra_rounds();
                        rounds_differ |= mesh[axis].all_reduce(here, Reduce::max) != here;
                    }
                }
                CHECK(a.whole(&Storage::master) == b.whole(&Storage::master));
                if (world.size() == 4) all.add(c, 1);
            }
    all.check();
    if (world.size() == 8) CHECK(world.all_reduce(int64_t(rounds_differ), Reduce::max) == 1);
}

// Also those of twice as many local batches of half the size, if gradients are summed once a step and no
// weight gets several sums from a half: from rounds, a tied table or several losses.
TEST_CASE(
    "experts: halves of a local batch in turn compute the bits of one after the other, and of two batches") {
    const Communicator world = Communicator::world("world");
    std::vector<MeshShape> views;
    if (world.size() == 2) views = {{.dp_shard = 2, .ep = 2}, {.tp = 2, .ep = 2}, {.cp = 2, .ep = 2}};
    if (world.size() == 4)
        views = {{.dp_shard = 4, .ep = 4},
                 {.dp_replicate = 2, .dp_shard = 2, .ep = 2},
                 {.dp_shard = 2, .tp = 2, .ep = 2, .etp = 2},
                 {.cp = 2, .tp = 2, .ep = 2}};
    const RandomStream random(13, "halves of local batches");
    uint64_t drawn = 0;
    const auto draw = [&](int choices) { return int(random.u64(drawn++) % uint64_t(choices)); };
    OneRankComparison all(world);
    int compared = 0;
    for (const MeshShape& view : views)
        for (const auto mode : {Stream::Mode::eager, Stream::Mode::threaded, Stream::Mode::deferred}) {
            MeshCase c = {.mesh = view, .model = tiny_config()};
            c.model.grouped().heads = c.model.grouped().kv_heads = 8;
            c.model.grouped().head_dim = 4;
            c.model.layers = 4;
            c.seq_len = 4 * view.cp * view.tp;
            set_experts(c.model, 1 + draw(expert_kinds - 1));
            c.model.moe.experts = round_up(c.model.moe.experts, view.ep * c.model.moe.groups);
            set_halves(c);
            c.sequences = 2 * (1 + draw(2));
            c.local_batches = 1 + draw(2);
            c.model.tied = draw(2) == 1;
            set_mtp(c, draw(2));
            c.document_mask = draw(2) == 1;
            c.streams = mode;
            c.gather = {.weights = Keep(draw(2)), .gradients = Keep(draw(2))};
            c.recompute = {.mode = RecomputeOptions::Mode(draw(4)), .every = 1, .budget = 0.3};
            constexpr double some[] = {0.3, 1, 1e9};
            c.exchanges.expert_capacity = some[draw(3)];
            if (mode == Stream::Mode::threaded) {  // units take turns, and most have no experts
                c.model.moe_layers = {.word = "0001"};
                c.gather = {};
            }
            if (mode == Stream::Mode::eager) {
                c.exchanges.expert_capacity = 1e9;
                c.gather.gradients = Keep::all;
                c.model.tied = false;
                set_mtp(c, 0);
            }
            CAPTURE(c.name());
            MeshCase one_by_one = c;
            one_by_one.overlap_pairs = false;
            MeshCase two = c;
            two.pipeline.timetable = one_stage();
            two.sequences /= 2;
            two.local_batches *= 2;
            const Mesh mesh(world.split(0, "world"), c.mesh);
            MeshRun a(c, mesh), b(one_by_one, mesh), d(two, mesh);
            REQUIRE(a.engine.options().overlap_pairs);
            for (const int64_t step : {1, 2}) {
                TestBatch batch = batch_of_step(c, uint64_t(step));
                CHECK(a.step(step, batch));
                CHECK(b.step(step, batch));
                CHECK(d.step(step, batch));
                CHECK(a.engine.counts() == b.engine.counts());
                CHECK(a.engine.extra_rounds() == b.engine.extra_rounds());
                // a half adds to no weight twice before the other one adds to it
                const bool adds_once = c.gather.gradients == Keep::all || mesh.size(axis::fsdp) == 1,
                           is_one_round = world.all_reduce(a.engine.extra_rounds(), Reduce::max) == 0;
                if (!adds_once || !is_one_round || c.model.mtp.layers > 0) continue;
                compared += 1;
                for (const MeshRun* other : {&b, &d}) {
                    if (other == &d && c.model.tied) continue;
                    CHECK(a.engine.scalars().loss == other->engine.scalars().loss);
                    CHECK(a.whole(&Storage::gradient) == other->whole(&Storage::gradient));
                    CHECK(a.whole(&Storage::master) == other->whole(&Storage::master));
                }
            }
            all.add(c, 2);
        }
    all.check();
    if (!views.empty()) CHECK(compared > 0);
}

TEST_CASE("experts: deferred streams take the steps of one rank, with 20 seeds") {
    const Communicator world = Communicator::world("world");
    if (world.size() != 2 && world.size() != 4) return;
    const std::vector<MeshShape> meshes =
        meshes_of(world.size(), {axis::pp, axis::dp_shard, axis::cp, axis::tp});
    OneRankComparison all(world);
    Part part("experts with deferred streams", world.size(), one_of_repeated(world.size()));
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        if (!part.takes_next()) continue;
        const RandomStream random(seed, "experts with deferred streams");
        uint64_t drawn = 0;
        const auto draw = [&](size_t choices) { return size_t(random.u64(drawn++) % choices); };
        std::vector<MeshShape> views;
        while (views.empty()) views = views_of(meshes[draw(meshes.size())]);
        MeshCase c = {.mesh = views[draw(views.size())], .model = tiny_config()};
        c.model.grouped().heads = c.model.grouped().kv_heads = 8;
        c.model.grouped().head_dim = 4;
        set_experts(c.model, 1 + int(draw(expert_kinds - 1)));
        c.model.moe.experts = round_up(c.model.moe.experts, c.mesh.ep * c.model.moe.groups);
        c.model.mtp.layers = int64_t(draw(2));
        c.seq_len = 4 * c.mesh.cp * c.mesh.tp;
        c.local_batches = 1 + int64_t(draw(2));
        c.exchanges.expert_capacity = std::array{0.3, 1.0, 1e9}[draw(3)];
        c.exchanges.overlap_tokens = draw(2) == 1;
        c.gather = {.weights = Keep(draw(2)), .gradients = Keep(draw(2))};
        c.recompute = {.mode = RecomputeOptions::Mode(draw(4)), .every = 1, .budget = 0.3};
        if (c.mesh.pp > 1) set_schedule(c, schedules()[draw(schedules().size())]);
        c.streams = Stream::Mode::deferred;
        all.add(c, 2, {}, fmt::format("seed {}: ", seed));
    }
    all.check();
}

TEST_CASE("experts: every schedule, also with gradients of weights that are computed later") {
    const Communicator world = Communicator::world("world");
    if (world.size() != 4) return;
    OneRankComparison all(world);
    int number = 0;
    for (const Schedule& schedule : schedules())
        for (const double capacity : {0.3, 1e9}) {
            MeshCase c = {.mesh = {.pp = 2, .dp_shard = 2, .ep = 2}, .model = tiny_config()};
            c.seq_len = 4;
            set_experts(c.model, 3);  // with biases
            set_schedule(c, schedule);
            if (capacity > 1) c.gather = {.weights = Keep::all, .gradients = Keep::all};
            c.exchanges.expert_capacity = capacity;
            // each schedule has 8-bit experts once, in turn with many and few rounds: their codes and scales
            // are in memory that is used again
            if (number++ % 4 % 3 != 0) {
                all.add(c, 2);
                continue;
            }
            c.model.dim = c.model.moe.hidden = 32;
            c.types.precision = {.experts = Recipe::rowwise, .expert_fqns = {"experts"}};
            c.optimizer.eps = float32_eps;
            all.add(c, 2, {1e-11, 1e-5, 1e-5});
        }
    all.check();
}
