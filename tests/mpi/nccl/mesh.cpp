// SPDX-License-Identifier: Apache-2.0
// Ranks whose tensors NCCL carries train as one rank on the CPU does.
#include "coeus/comm/nccl_world.hpp"
#include "coeus/comm/queue_watch.hpp"
#include "gpu/gpu.hpp"
#include "stand_ins/nccl/nccl.hpp"
#include "support/catch.hpp"
#include "support/mesh_factors.hpp"
#include "support/one_rank.hpp"
#include "support/part.hpp"

#include <algorithm>
#include <string>
#include <vector>

using namespace coeus;
using namespace coeus::test;

namespace {

// Cases whose tensors NCCL carries, each with its own order of the GPU's work.
class Cases {
public:
    explicit Cases(const Communicator& world) : world_(world), all_(world) {}
    void add(MeshCase c, uint64_t order, const Tolerances& tolerances = in_float32, bool graphs = true) {
        c.types.master = c.types.compute = Dtype::f32;
        c.optimizer.eps = float32_eps;
        c.device = &the_gpu();
        c.nccl = &nccl_stand_in();
        c.streams = Stream::Mode::eager;
        c.graphs = graphs;
        c.guarded = order % 2 == 0;  // ranks agree on refusals; here nothing is refused
        all_.add(c, 2, tolerances);
        orders_.push_back(order);
    }
    void check() {
        for (size_t i = 0; i < all_.size(); ++i) {
            const int before = nccl_launches();
            set_order(orders_[i] + uint64_t(world_.rank()));
            CHECK(all_.difference(i) == "");
            CHECK(nccl_launches() > before);
            CHECK(nccl_live() == 0);
        }
    }

private:
    const Communicator& world_;
    OneRankComparison all_;
    std::vector<uint64_t> orders_;
};

}  // namespace

TEST_CASE("NCCL: meshes equal one rank on the CPU") {
    const Communicator world = Communicator::world("world");
    Cases all(world);
    size_t number = 0;
    // on many ranks, those that ranks without NCCL do not test (gpu/mpi)
    const bool divided = world.size() > 2;
    Part part("meshes of GPUs", world.size(), {divided ? 2 : 1, divided ? 4 : 1}, divided ? 1 : 0);
    for (const MeshShape& mesh :
         meshes_of(world.size(), {axis::pp, axis::dp_replicate, axis::dp_shard, axis::cp, axis::tp})) {
        // each axis alone on two ranks, then combinations of two
        if (std::max({mesh.pp, mesh.dp_replicate, mesh.dp_shard, mesh.cp, mesh.tp}) > 2) continue;
        const std::vector<MeshVariant> variants = full_product({mesh});
        // one case of each mesh, each time with another combination of the other choices
        ++number;
        if (!part.takes_next()) continue;
        MeshCase c = short_case(variants, number * 89);
        c.types.precision = {};
        all.add(c, number);
    }
    all.check();
}

TEST_CASE("NCCL: products in 8 bits, in graphs") {
    const Communicator world = Communicator::world("world");
    if (world.size() != 2) return;
    Part part("NCCL: 8 bits", world.size(), {2, 2});
    Cases all(world);
    for (const MeshShape& mesh : {MeshShape{.pp = 2}, {.dp_shard = 2}, {.cp = 2}, {.tp = 2}})
        for (int recipe = 1; recipe < recipe_choices; ++recipe)
            if (part.takes_next())
                all.add(float32_case_of(mesh, recipe), uint64_t(recipe), in_8_bits_and_float32);
    all.check();
}

TEST_CASE("NCCL: experts on several ranks, in one round and in many") {
    const Communicator world = Communicator::world("world");
    if (world.size() == 1) return;
    Cases all(world);
    for (const double capacity : {0.3, 1e9}) {
        MeshCase c = {.mesh = {.dp_shard = world.size(), .ep = world.size()}, .model = tiny_config()};
        set_experts(c.model, 1);
        c.exchanges.expert_capacity = capacity;
        all.add(c, 3);
    }
    all.check();
}

namespace {

// Each mesh with every capacity, or with one of them.
void check_halves(const Communicator& world, uint64_t order, bool every_capacity) {
    Cases all(world);
    uint64_t number = 0;
    for (const MeshShape& mesh : {MeshShape{.dp_shard = 2, .ep = 2}, {.tp = 2, .ep = 2}, {.cp = 2, .ep = 2}})
        for (const double capacity : {0.3, 1.0, 1e9}) {
            ++order;
            if (!every_capacity && number++ % 4 != 0) continue;
            MeshCase c = {.mesh = mesh, .model = tiny_config(), .seq_len = 24};
            c.model.layers = 3;
            c.model.dim = 32;
            c.model.grouped().heads = 8;
            c.model.grouped().kv_heads = 4;
            c.model.grouped().head_dim = 4;
            set_attention(c.model, 5);
            set_experts(c.model, 2);
            set_halves(c);
            c.document_mask = true;
            c.exchanges.expert_capacity = capacity;
            c.recompute = {.mode = RecomputeOptions::Mode((order + order / 3) % 3), .every = 2};
            all.add(c, order, in_float32, order % 3 != 0);
        }
    all.check();
}

}  // namespace

TEST_CASE(
    "NCCL: halves of a local batch in turn, with blocks that have room for their rows, and with rounds") {
    const Communicator world = Communicator::world("world");
    if (world.size() == 2) check_halves(world, 41, false);
}

TEST_CASE("soak: NCCL: halves of a local batch in turn, in many orders of the GPU's work", "[.soak]") {
    const Communicator world = Communicator::world("world");
    if (world.size() != 2) return;
    for (uint64_t order = 100; order < 150; order += 10) check_halves(world, order, true);
}

namespace {

// Steps of several local batches: each kind of parallelism that may have work under way between two of them.
std::vector<MeshCase> several_batches(int ranks) {
    std::vector<MeshCase> cases;
    const auto add = [&](const MeshShape& mesh, const auto& change) {
        MeshCase c = {.mesh = mesh, .model = tiny_config(), .types = {Dtype::f32, Dtype::f32}};
        change(c);
        c.device = &the_gpu();
        c.nccl = &nccl_stand_in();
        cases.push_back(c);
    };
    const auto nothing = [](MeshCase&) {};
    const auto keeps_all = [](MeshCase& c) { c.gather = {.weights = Keep::all, .gradients = Keep::all}; };
    const auto schedule = [](const char* name) {
        return [name](MeshCase& c) { set_schedule(c, *find_schedule(name)); };
    };
    const auto bf16_gradients = [](MeshCase& c) {
        c.types.compute = Dtype::bf16;
        c.types.gradients_in_bf16 = true;
        c.gather.most_summed = 200;
    };
    const auto experts = [](MeshCase& c) {
        set_experts(c.model, 1);
        c.exchanges.expert_capacity = 1e9;
    };
    if (ranks == 2) {
        add({.dp_shard = 2}, nothing);
        add({.dp_shard = 2}, keeps_all);
        add({.dp_replicate = 2}, nothing);
        add({.dp_shard = 2}, bf16_gradients);
        add({.dp_replicate = 2}, bf16_gradients);
        add({.tp = 2}, [](MeshCase& c) { c.exchanges.overlap_tokens = true; });
        add({.cp = 2}, [](MeshCase& c) { c.exchanges.context.exchange = ContextExchange::ring; });
        add({.pp = 2}, schedule("1F1B"));
        add({.pp = 2}, schedule("ZBVZeroBubble"));
        add({.dp_shard = 2, .ep = 2}, experts);
    } else {
        add({.dp_replicate = 2, .dp_shard = 2}, nothing);
        add({.dp_replicate = 2, .dp_shard = 2}, bf16_gradients);
        add({.pp = 2, .dp_shard = 2}, schedule("Interleaved1F1B"));
        add({.dp_shard = 2, .tp = 2}, keeps_all);
    }
    return cases;
}

}  // namespace

TEST_CASE("NCCL: a sum of gradients takes one point of its queue, however many pieces it has") {
    const Communicator world = Communicator::world("world");
    const auto points_of_a_step = [&](const MeshShape& shape, bool in_bf16, int64_t most_summed) {
        MeshCase c = {.mesh = shape, .model = tiny_config(), .types = {Dtype::f32, Dtype::bf16}};
        c.types.gradients_in_bf16 = in_bf16;
        c.gather.most_summed = most_summed;
        c.device = &the_gpu();
        c.nccl = &nccl_stand_in();
        Mesh mesh(world.split(0, "world"), c.mesh);
        NcclWorld nccl(*c.nccl, mesh.world(), *c.device);
        mesh.connect(nccl);
        MeshRun run(c, mesh);
        TestBatch batch = batch_of_step(c, 1);
        Queue& sums = *run.engine.execs_of_gathered().reduce.queue;
        const int64_t before = sums.mark();
        CHECK(run.step(1, batch));
        return sums.mark() - before;
    };
    for (const MeshShape& shape : {MeshShape{.dp_shard = world.size()}, {.dp_replicate = world.size()}}) {
        const int64_t without = points_of_a_step(shape, false, 200);
        CHECK(without > 1);
        CHECK(points_of_a_step(shape, true, 1 << 20) == without);
        CHECK(points_of_a_step(shape, true, 200) == without);
    }
}

TEST_CASE(
    "NCCL: graphs of local batches have the bits of kernel by kernel, and do not grow with their number") {
    const Communicator world = Communicator::world("world");
    if (world.size() == 1) return;
    uint64_t order = 0;
    std::vector<int64_t> nodes;
    const auto run = [&](MeshCase c, int64_t local_batches) {
        c.local_batches = local_batches;
        CAPTURE(c.name());
        set_order(++order + uint64_t(world.rank()));
        Mesh mesh(world.split(0, "world"), c.mesh);
        NcclWorld nccl(*c.nccl, mesh.world(), *c.device);
        mesh.connect(nccl);
        MeshCase in_graphs = c;
        in_graphs.graphs = true;
        MeshRun by_graphs(in_graphs, mesh), one_by_one(c, mesh);
        for (int64_t step = 1; step <= 2; ++step) {
            TestBatch batch = batch_of_step(c, uint64_t(step));
            CHECK(by_graphs.step(step, batch));
            CHECK(one_by_one.step(step, batch));
            CHECK(by_graphs.engine.scalars().loss == one_by_one.engine.scalars().loss);
        }
        CHECK(by_graphs.whole(&Storage::gradient) == one_by_one.whole(&Storage::gradient));
        CHECK(by_graphs.whole(&Storage::master) == one_by_one.whole(&Storage::master));
        nodes.push_back(by_graphs.engine.graph_nodes());
        by_graphs.engine.forget_graphs();
    };
    // one runs kernel by kernel, the next ones as a graph
    const std::vector<MeshCase> cases = several_batches(world.size());
    Part part("graphs of local batches", world.size(), {1, 2});
    for (const MeshCase& c : cases)
        if (part.takes_next() || &c == &cases.front()) run(c, 4);
    run(cases.front(), 3);
    CHECK(nodes.back() > 0);
    CHECK(nodes.back() == nodes.front());
    CHECK(nccl_live() == 0);
}

TEST_CASE("NCCL: a step in which experts' rows do not fit into their blocks is computed again exactly") {
    const Communicator world = Communicator::world("world");
    if (world.size() == 1) return;
    struct Case {
        MeshShape mesh;
        double capacity;
        RecomputeOptions::Mode recompute;
        Dtype type;
        bool is_twice;  // computed twice
    };
    using enum RecomputeOptions::Mode;
    const MeshShape shards = {.dp_shard = 2, .ep = 2};
    const std::vector<Case> two = {{shards, 0.3, nothing, Dtype::f32, true},
                                   {shards, 0.3, blocks, Dtype::bf16, true},
                                   {shards, 1e9, nothing, Dtype::f32, false}};
    const std::vector<Case> four = {
        {{.dp_shard = 2, .tp = 2, .ep = 2, .etp = 2}, 1e9, nothing, Dtype::f32, false},
        {{.pp = 2, .dp_shard = 2, .ep = 2}, 0.6, nothing, Dtype::f32, true}};
    Part part("rows that do not fit", world.size(), {1, world.size() > 2 ? 2 : 1});
    for (const Case& of : world.size() == 2 ? two : four) {
        if (!part.takes_next()) continue;
        MeshCase c = {.mesh = of.mesh,
                      .model = tiny_config(),
                      .types = {of.type, of.type},
                      .local_batches = 2,
                      .recompute = {.mode = of.recompute, .every = 1},
                      .device = &the_gpu(),
                      .nccl = &nccl_stand_in()};
        set_experts(c.model, 1);
        if (c.mesh.pp > 1) {
            set_schedule(c, *find_schedule("DualPipeV"));  // four micro-batches
            c.local_batches = 1;
            c.gather = {.weights = Keep::all, .gradients = Keep::all};
        }
        c.exchanges.expert_capacity = of.capacity;
        c.guarded = true;
        CAPTURE(c.name());
        set_order(7 + uint64_t(world.rank()));
        Mesh mesh(world.split(0, "world"), c.mesh);
        QueueWatch watch({.who = "this rank", .fail = [](const std::string& why) { FAIL(why); }});
        watch.allow(1e9, "no time-out");
        NcclWorld nccl(*c.nccl, mesh.world(), *c.device, &watch);
        mesh.connect(nccl);
        MeshCase in_graphs = c;
        in_graphs.graphs = true;
        MeshRun in_blocks(in_graphs, mesh), in_rounds(c, mesh);
        const auto compare = [&](int64_t step, const StepLimits& limits, bool accepted) {
            TestBatch batch = batch_of_step(c, uint64_t(step));
            CHECK(in_blocks.step(step, batch, limits) == accepted);
            CHECK(in_rounds.step(step, batch, limits) == accepted);
            CHECK(in_blocks.engine.scalars().loss == in_rounds.engine.scalars().loss);
            CHECK(in_blocks.engine.counts() == in_rounds.engine.counts());
            CHECK(in_blocks.whole(&Storage::gradient) == in_rounds.whole(&Storage::gradient));
            CHECK(in_blocks.whole(&Storage::master) == in_rounds.whole(&Storage::master));
        };
        compare(1, {}, true);
        compare(2, {}, true);            // a graph
        compare(3, {.loss = 0}, false);  // refused, also after it was computed again
        CHECK(in_blocks.engine.steps_computed_twice() == (of.is_twice ? 3 : 0));
        // then the engine gives up blocks
        CHECK(in_blocks.engine.uses_expert_blocks() != of.is_twice);
        compare(4, {}, true);
        CHECK(in_blocks.engine.steps_computed_twice() == (of.is_twice ? 3 : 0));
        CHECK(in_blocks.engine.gives_graphs() != of.is_twice);
        CHECK(in_rounds.engine.steps_computed_twice() == 0);
        in_blocks.engine.forget_graphs();
    }
}

TEST_CASE("NCCL: one rank whose rows do not fit makes all ranks compute the step again") {
    const Communicator world = Communicator::world("world");
    if (world.size() != 2) return;
    MeshCase c = {.mesh = {.dp_shard = 2, .ep = 2},
                  .model = tiny_config(),
                  .types = {Dtype::f32, Dtype::f32},
                  .device = &the_gpu(),
                  .nccl = &nccl_stand_in()};
    set_experts(c.model, 1);
    c.graphs = true;
    int64_t twice = 0, steps = 0;
    for (const double capacity : {1.0, 1.05, 1.1, 1.7}) {
        c.exchanges.expert_capacity = capacity;
        Mesh mesh(world.split(0, "world"), c.mesh);
        QueueWatch watch({.who = "this rank", .fail = [](const std::string& why) { FAIL(why); }});
        watch.allow(1e9, "no time-out");
        NcclWorld nccl(*c.nccl, mesh.world(), *c.device, &watch);
        mesh.connect(nccl);
        MeshRun run(c, mesh);
        for (const int64_t step : {1, 2}) {
            TestBatch batch = batch_of_step(c, uint64_t(step));
            CHECK(run.step(step, batch));
            ++steps;
        }
        const int64_t here = run.engine.steps_computed_twice();
        CHECK(world.all_reduce(here, Reduce::max) == here);
        twice += here;
        run.engine.forget_graphs();
    }
    CHECK(twice > 0);
    CHECK(twice < steps);
}

TEST_CASE("NCCL: every exchange of keys and values, tokens that overlap, kept weights, the tied table") {
    const Communicator world = Communicator::world("world");
    if (world.size() != 2) return;
    Cases all(world);
    for (const auto exchange : {ContextExchange::all_gather, ContextExchange::ring, ContextExchange::heads}) {
        MeshCase c = {.mesh = {.cp = 2}, .model = tiny_config()};
        c.exchanges.context.exchange = exchange;
        all.add(c, 1);
    }
    MeshCase overlapped = {.mesh = {.tp = 2}, .model = tiny_config()};
    overlapped.exchanges.overlap_tokens = true;
    all.add(overlapped, 2);
    // a graph gathers weights that validation may have gathered already
    MeshCase kept = {.mesh = {.dp_shard = 2}, .model = tiny_config()};
    kept.gather = {.weights = Keep::all, .gradients = Keep::all};
    all.add(kept, 4);
    // more operations of a communicator than the watch remembers
    MeshCase deep = {.mesh = {.dp_shard = 2}, .model = tiny_config(36)};
    all.add(deep, 5);
    MeshCase tied = {.mesh = {.pp = 2}, .model = tiny_config(4, true), .sequences = 2};
    tied.pipeline = pipeline_of("1F1B", 2, 2, 1, tied.model);
    all.add(tied, 3);
    all.check();
}

TEST_CASE("NCCL: every schedule of pipelines") {
    const Communicator world = Communicator::world("world");
    Cases all(world);
    Part part("schedules of GPUs", world.size(), {1, world.size() > 2 ? 4 : 2});
    uint64_t number = 0;
    for (const Schedule& schedule : schedules()) {
        MeshCase c = {.mesh = {.pp = world.size()}, .model = tiny_config(4, ++number % 3 == 0)};
        set_schedule(c, schedule);
        if (part.takes_next()) all.add(c, number);
    }
    all.check();
}

TEST_CASE("NCCL: keys and values around a ring of all ranks") {
    const Communicator world = Communicator::world("world");
    Cases all(world);
    for (const auto balancing : {Balancing::none, Balancing::head_tail}) {
        MeshCase c = {.mesh = {.cp = world.size()}, .model = tiny_config()};
        c.exchanges.context = {.exchange = ContextExchange::ring, .balancing = balancing};
        all.add(c, 1 + uint64_t(balancing));
    }
    all.check();
}
