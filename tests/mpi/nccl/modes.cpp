// SPDX-License-Identifier: Apache-2.0
// Training where NCCL's rules leave a choice: the order of operations, room for few of them, first calls that
// block the host, and sums in another order each time.
#include "coeus/comm/nccl_world.hpp"
#include "gpu/gpu.hpp"
#include "stand_ins/nccl/nccl.hpp"
#include "support/catch.hpp"
#include "support/mesh_factors.hpp"
#include "support/part.hpp"

#include <map>
#include <string>
#include <vector>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;
using Order = NcclMode::Order;

namespace {

// Sets a mode for the stand-in until the end of its scope.
struct Mode {
    explicit Mode(const NcclMode& mode) { nccl_stand_in_mode(mode); }
    ~Mode() { nccl_stand_in_mode({}); }
    Mode(const Mode&) = delete;
    Mode& operator=(const Mode&) = delete;
};

// What two steps give: one kernel by kernel, one as a graph.
struct Results {
    std::vector<double> losses, norms;
    std::map<std::string, std::vector<double>> gradients, weights;
    bool operator==(const Results&) const = default;
};

Results results_of(MeshCase c, const Communicator& world, const NcclMode& mode) {
    const Mode set(mode);
    c.types.master = c.types.compute = Dtype::f32;
    c.device = &the_gpu();
    c.nccl = &nccl_stand_in();
    c.graphs = true;
    Mesh mesh(world.split(0, "world"), c.mesh);
    NcclWorld nccl(*c.nccl, mesh.world(), *c.device);
    mesh.connect(nccl);
    MeshRun run(c, mesh);
    nccl.end_connecting();
    Results results;
    for (uint64_t step = 1; step <= 2; ++step) {
        TestBatch batch = batch_of_step(c, step);
        CHECK(run.step(int64_t(step), batch));
        results.losses.push_back(run.engine.scalars().loss);
        results.norms.push_back(run.engine.scalars().grad_norm);
    }
    results.gradients = run.whole(&Storage::gradient);
    results.weights = run.whole(&Storage::master);
    run.engine.forget_graphs();
    return results;
}

MeshCase with_schedule(const MeshShape& mesh, const char* schedule) {
    MeshCase c = {.mesh = mesh, .model = tiny_config(4)};
    set_schedule(c, *find_schedule(schedule));
    return c;
}

MeshCase with_experts(MeshCase c, double capacity) {
    set_experts(c.model, 1);
    c.exchanges.expert_capacity = capacity;
    return c;
}

// Each kind of parallelism that has its own pattern of operations: alone on two ranks, in pairs on four.
std::vector<MeshCase> cases_for(int ranks) {
    std::vector<MeshCase> cases;
    if (ranks == 2) {
        cases = {{.mesh = {.dp_shard = 2}, .model = tiny_config(4)},
                 {.mesh = {.tp = 2}, .model = tiny_config()},
                 {.mesh = {.cp = 2}, .model = tiny_config()},
                 with_experts({.mesh = {.dp_shard = 2, .ep = 2}, .model = tiny_config()}, 1e9)};
        cases[0].local_batches = 4;
        cases[1].exchanges.overlap_tokens = true;
        cases[2].exchanges.context = {.exchange = ContextExchange::ring, .balancing = Balancing::head_tail};
    } else {
        cases = {{.mesh = {.dp_shard = 2, .tp = 2}, .model = tiny_config()},
                 {.mesh = {.dp_replicate = 2, .cp = 2}, .model = tiny_config()},
                 with_schedule({.pp = 2, .dp_shard = 2}, "1F1B"),
                 with_schedule({.pp = 2, .tp = 2}, "ZBVZeroBubble"),
                 with_schedule({.pp = 2, .cp = 2}, "InterleavedZeroBubble"),
                 with_experts(with_schedule({.pp = 2, .dp_shard = 2, .ep = 2}, "DualPipeV"), 1.5)};
        cases[0].local_batches = cases[2].local_batches = 4;
        cases[5].gather = {.weights = Keep::all, .gradients = Keep::all};
    }
    for (const Schedule& schedule : schedules()) cases.push_back(with_schedule({.pp = ranks}, schedule.name));
    return cases;
}

constexpr int one_at_a_time = NcclMode::usual_blocks;

}  // namespace

TEST_CASE("NCCL's order, room and first calls change no bit, and no schedule waits forever") {
    const Communicator world = Communicator::world("world");
    // each case in serial order, and in one of the others; pipelines of four ranks rarely in others
    const std::vector<NcclMode> others = {
        {.order = Order::overlapped, .blocking_first_calls = true},
        {.order = Order::overlapped, .resident_blocks = one_at_a_time},
        {.order = Order::unordered, .blocking_first_calls = true, .resident_blocks = 16 * one_at_a_time},
        {.order = Order::overlapped, .blocking_first_calls = true, .resident_blocks = 2 * one_at_a_time}};
    const int modes = int(others.size());
    Part usual_part("modes of NCCL", world.size(), {modes, modes}),
        rare_part("modes of NCCL for stages", world.size(), {4 * modes, 4 * modes});
    // 5 has no common factor with the modes, so that each case comes with each of them on some day
    Part cases("cases of modes", world.size(), {1, world.size() > 2 ? 5 : 1});
    size_t number = 0;
    for (const MeshCase& c : cases_for(world.size())) {
        INFO(c.name());
        Part& part = c.mesh.pp == 4 ? rare_part : usual_part;
        std::vector<NcclMode> taken;
        for (const NcclMode& mode : others)
            if (part.takes_next()) taken.push_back(mode);
        ++number;
        if (!cases.takes_next()) continue;
        set_order(number + uint64_t(world.rank()));
        const Results usual = results_of(c, world, {});
        set_order(2 * number + uint64_t(world.rank()));
        CHECK(results_of(c, world, {.order = Order::serial, .blocking_first_calls = number % 2 == 0}) ==
              usual);
        for (const NcclMode& mode : taken) CHECK(results_of(c, world, mode) == usual);
        CHECK(nccl_live() == 0);
    }
}

TEST_CASE("NCCL: sums in another order each time change only sums over more than two ranks") {
    const Communicator world = Communicator::world("world");
    const int ranks = world.size();
    const NcclMode random = {.random_sums = true};
    // two numbers have one order
    const MeshCase shards = {.mesh = {.dp_shard = ranks}, .model = tiny_config()};
    const Results usual = results_of(shards, world, {}), drawn = results_of(shards, world, random),
                  again = results_of(shards, world, random);
    CHECK((drawn.gradients == usual.gradients) == (ranks == 2));
    CHECK((drawn.gradients == again.gradients) == (ranks == 2));
    CHECK(drawn.losses[0] == Approx(usual.losses[0]).epsilon(1e-6));
    // messages are not summed
    const MeshCase stages = with_schedule({.pp = ranks}, "GPipe");
    CHECK(results_of(stages, world, random).gradients == results_of(stages, world, {}).gradients);

    // the ranks of a sum agree
    const Mode set(random);
    Communicator all = world.split(0, "all");
    NcclWorld nccl(nccl_stand_in(), world, the_gpu());
    all.connect(nccl);
    Exec exec(the_gpu());
    constexpr int64_t count = 1000;
    OwnedTensor there(Dtype::f32, {count}, "there", the_gpu().memory()), here(Dtype::f32, {count});
    for (int64_t i = 0; i < count; ++i) here.view.as<float>()[i] = 1.0F / float(1 + i + count * world.rank());
    the_gpu().copy(there.view.data, here.view.data, here.view.bytes());
    all.all_reduce(exec, there.view);
    exec.queue->finish();
    the_gpu().copy(here.view.data, there.view.data, here.view.bytes());
    const std::vector<float> own(here.view.as<float>(), here.view.as<float>() + count);
    world.broadcast(here.view, 0);
    CHECK(own == std::vector<float>(here.view.as<float>(), here.view.as<float>() + count));
}

namespace {

// Two communicators of the same ranks, used on two queues.
struct TwoQueues {
    Communicator world = Communicator::world("world"), other = world.split(0, "other");
    Exec first{the_gpu()}, second{the_gpu()};
    NcclWorld nccl{nccl_stand_in(), world, the_gpu()};
    OwnedTensor a{Dtype::f32, {8}, "a", the_gpu().memory()}, b{Dtype::f32, {8}, "b", the_gpu().memory()};

    TwoQueues() {
        world.connect(nccl);
        other.connect(nccl);
    }
    void sum_both() {
        world.all_reduce(first, a.view);
        other.all_reduce(second, b.view);
    }
    void finish() {
        first.queue->finish();
        second.queue->finish();
    }
};

}  // namespace

TEST_CASE("NCCL: without an order, operations that do not fit on the GPU at once wait for each other") {
    // of all ranks in so many attempts, or in fewer if `enough` are found: whether two operations meet
    // depends on the machine, too
    const auto dead_locks = [](const NcclMode& mode, uint64_t attempts, int64_t enough) {
        const Mode set(mode);
        int64_t found = 0;
        for (uint64_t seed = 1; seed <= attempts && found < enough; ++seed) {
            TwoQueues both;
            set_order(seed * 7 + uint64_t(both.world.rank()));
            both.sum_both();
            int64_t waits = 0;
            try {
                both.finish();
            } catch (const std::runtime_error& error) {
                CHECK_THAT(error.what(), Contains("the ranks wait for each other"));
                waits = 1;
            }
            found += both.world.all_reduce(waits);
        }
        return found;
    };
    constexpr int64_t all = INT64_MAX;
    CHECK(dead_locks({.order = Order::unordered, .resident_blocks = one_at_a_time}, 1000, 1) > 0);
    CHECK(dead_locks({.order = Order::unordered, .resident_blocks = 2 * one_at_a_time}, 8, all) == 0);
    CHECK(dead_locks({.order = Order::overlapped, .resident_blocks = one_at_a_time}, 8, all) == 0);
    CHECK(dead_locks({.order = Order::serial}, 8, all) == 0);
}

TEST_CASE("NCCL: in serial order, calls whose order differs between ranks wait for each other") {
    const Mode set({.order = Order::serial});
    TwoQueues both;
    if (both.world.rank() == 0) {
        both.sum_both();
    } else {
        both.other.all_reduce(both.second, both.b.view);
        both.world.all_reduce(both.first, both.a.view);
    }
    CHECK_THROWS_WITH(both.finish(), Contains("the ranks wait for each other; this one for all_reduce"));
}

TEST_CASE("NCCL: a first call that other ranks make later blocks the host") {
    const Mode set({.order = Order::overlapped, .blocking_first_calls = true});
    TwoQueues both;
    both.sum_both();  // connects the ranks
    both.finish();
    const Communicator third = both.world.split(0, "third");
    Communicator late = third.split(0, "late");
    late.connect(both.nccl);
    if (both.world.rank() == 0) {
        CHECK_THROWS_WITH(
            late.all_reduce(both.first, both.a.view),
            Contains("the ranks wait for each other; this one for the first call of a communicator, "));
    } else {
        // waits for rank 0, which has not made its call
        both.world.all_reduce(both.first, both.a.view);
        CHECK_THROWS_WITH(both.finish(), Contains("the ranks wait for each other"));
    }
}
