// SPDX-License-Identifier: Apache-2.0
// Ranks that share a GPU and exchange tensors through NCCL (2.30 or newer). tests/gpu/run.sh FOLDER
// nccl-shared runs these cases: each prints lines that begin with the number of what it shows, and the last
// one of a number counts, so that a run that is cut short has shown something.
#include "coeus/base/clock.hpp"
#include "coeus/base/text.hpp"
#include "coeus/comm/nccl_world.hpp"
#include "gpu/gpu.hpp"
#include "gpu/nccl/nccl.hpp"
#include "support/catch.hpp"
#include "support/mesh_factors.hpp"
#include "support/one_rank.hpp"
#include "support/part.hpp"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

using namespace coeus;
using namespace coeus::test;

namespace {

// Limits of blocks that leave room for the operations of all ranks.
constexpr NcclCtas few_blocks = {.state = 2, .others = 2};

struct SharedGpu {
    Communicator world = Communicator::world("world");
    const NcclLibrary& nccl = the_nccl();

    // "2 nccl 2.32.3, 4 ranks on 1 GPU: 31 of 31 meshes equal one rank"
    void show(int number, const std::string& text) const {
        if (world.rank() == 0)
            std::cout << fmt::format("\nshown {} nccl {}, {} ranks on 1 GPU: {}\n", number,
                                     nccl.version_text(), world.size(), text)
                      << std::flush;
    }
    // The bytes of the GPU in use, by all ranks; no rank continues before all have looked.
    int64_t bytes_in_use() const {
        world.barrier();
        const int64_t bytes = the_gpu().taken_bytes();
        world.barrier();
        return bytes;
    }
};

MeshCase in_float32_on(const MeshShape& mesh) {
    MeshCase c = {.mesh = mesh, .model = tiny_config(), .types = {Dtype::f32, Dtype::f32}};
    c.optimizer.eps = float32_eps;
    c.device = &the_gpu();
    c.nccl = &the_nccl();
    c.graphs = true;
    return c;
}

MeshCase scheduled(const MeshShape& mesh, const char* schedule) {
    MeshCase c = in_float32_on(mesh);
    c.model.layers = 4;
    set_schedule(c, *find_schedule(schedule));
    return c;
}

MeshCase with_capacity(const MeshShape& mesh, double capacity) {
    MeshCase c = in_float32_on(mesh);
    set_experts(c.model, 1);
    c.exchanges.expert_capacity = capacity;
    return c;
}

MeshCase exchanging(const MeshShape& mesh, ContextExchange exchange) {
    MeshCase c = in_float32_on(mesh);
    c.exchanges.context = {.exchange = exchange, .balancing = Balancing::head_tail};
    return c;
}

MeshCase overlapping(const MeshShape& mesh) {
    MeshCase c = in_float32_on(mesh);
    c.exchanges.overlap_tokens = true;
    return c;
}

// Each kind of parallelism alone, and pairs of them: the first ones are those that differ most.
std::vector<MeshCase> meshes_for(int ranks) {
    const int n = ranks;
    std::vector<MeshCase> cases = {in_float32_on({.dp_shard = n}),
                                   in_float32_on({.dp_shard = n / 2, .tp = 2}),
                                   scheduled({.pp = n}, "1F1B"),
                                   exchanging({.cp = n}, ContextExchange::ring),
                                   with_capacity({.dp_shard = n, .ep = n}, 1e9),
                                   overlapping({.dp_replicate = n / 2, .tp = 2}),
                                   in_float32_on({.dp_replicate = n}),
                                   exchanging({.cp = n}, ContextExchange::all_gather),
                                   exchanging({.dp_shard = n / 2, .cp = 2}, ContextExchange::heads),
                                   with_capacity({.dp_shard = n, .ep = n}, 0.3),
                                   with_capacity({.dp_shard = n, .ep = n}, 1.5),
                                   scheduled({.pp = n}, "InterleavedZeroBubble"),
                                   scheduled({.pp = n}, "ZBVZeroBubble"),
                                   scheduled({.pp = n}, "DualPipeV")};
    if (n == 4) {
        for (const MeshShape& mesh :
             {MeshShape{.dp_replicate = 2, .dp_shard = 2}, {.dp_replicate = 2, .tp = 2}, {.cp = 2, .tp = 2}})
            cases.push_back(in_float32_on(mesh));
        cases.push_back(overlapping({.dp_shard = 2, .tp = 2}));
        cases.push_back(exchanging({.dp_replicate = 2, .cp = 2}, ContextExchange::ring));
        cases.push_back(with_capacity({.dp_shard = 2, .tp = 2, .ep = 2, .etp = 2}, 1e9));
        for (const MeshShape& mesh :
             {MeshShape{.pp = 2, .dp_shard = 2}, {.pp = 2, .tp = 2}, {.pp = 2, .cp = 2}})
            cases.push_back(scheduled(mesh, "Interleaved1F1B"));
    }
    return cases;
}

// The weights after two steps, one kernel by kernel and one as a graph, or both kernel by kernel.
struct SharedRun {
    std::vector<double> losses;
    std::map<std::string, std::vector<double>> weights;
    bool operator==(const SharedRun&) const = default;
};
SharedRun run_on_shared_gpu(MeshCase c, const Communicator& world, bool graphs) {
    c.graphs = graphs;
    c.local_batches = std::max<int64_t>(c.local_batches, 2);
    Mesh mesh(world.split(0, "world"), c.mesh);
    std::optional<MeshRun> run;
    NcclWorld nccl(*c.nccl, mesh.world(), *c.device);  // destroyed before the queues
    mesh.connect(nccl, few_blocks);
    run.emplace(c, mesh);
    nccl.end_connecting();
    SharedRun done;
    for (int64_t step = 1; step <= 3; ++step) {
        TestBatch samples = batch_of_step(c, uint64_t(step));
        CHECK(run->step(step, samples));
        done.losses.push_back(run->engine.scalars().loss);
    }
    done.weights = run->whole(&Storage::master);
    run->engine.forget_graphs();
    return done;
}

}  // namespace

TEST_CASE_METHOD(SharedGpu, "shared NCCL: communicators, and the memory of each", "[.][nccl-shared]") {
    const MeshShape shape =
        world.size() == 2 ? MeshShape{.dp_shard = 2, .ep = 2} : MeshShape{.pp = 2, .dp_shard = 2, .ep = 2};
    MeshCase c = in_float32_on(shape);
    if (shape.pp == 2) c = scheduled(shape, "1F1B");
    set_experts(c.model, 1);
    Mesh mesh(world.split(0, "world"), shape);
    std::optional<MeshRun> run;
    const int64_t before = bytes_in_use();
    NcclWorld connected(nccl, mesh.world(), the_gpu());
    mesh.connect(connected, few_blocks);
    const int64_t after = bytes_in_use(), made = carrying_communicators(shape) + 1;
    CHECK(made > 4);
    CHECK(after > before);
    const double each = double(after - before) / double(made * world.size());
    run.emplace(c, mesh);
    connected.end_connecting();
    const int64_t allocated = bytes_in_use();
    for (int64_t step = 1; step <= 2; ++step) {
        TestBatch samples = batch_of_step(c, uint64_t(step));
        CHECK(run->step(step, samples));
    }
    const int64_t used = bytes_in_use();
    run->engine.forget_graphs();
    show(1, fmt::format(
                "{}, {} with the first one; memory {} a communicator ({} in use before, {} after; two steps "
                "took {} more, with CUDA's libraries)",
                connected.text(), made, bytes_text(each), bytes_text(double(before)),
                bytes_text(double(after)), bytes_text(double(std::max<int64_t>(0, used - allocated)))));
}

TEST_CASE_METHOD(SharedGpu, "shared NCCL: meshes equal one rank on the CPU", "[.][nccl-shared]") {
    OneRankComparison all(world);
    Part part("meshes of a shared GPU", world.size(), {1, 12});
    for (const MeshCase& c : meshes_for(world.size()))
        if (part.takes_next()) all.add(c, 2, in_float32);
    size_t equal = 0;
    const Timer timer;
    for (size_t i = 0; i < all.size(); ++i) {
        set_order(i + uint64_t(world.rank()));
        const std::string difference = all.difference(i);
        CHECK(difference == "");
        equal += difference.empty() ? 1 : 0;
        show(2, fmt::format("{} of {} meshes equal one rank ({:.0f} s)", equal, all.size(), timer.seconds()));
    }
}

TEST_CASE_METHOD(SharedGpu, "shared NCCL: graphs have the bits of kernel by kernel, and so has a second run",
                 "[.][nccl-shared]") {
    Part part("graphs of a shared GPU", world.size(), {1, 12});
    std::vector<MeshCase> cases;
    for (const MeshCase& c : meshes_for(world.size()))
        // rows that do not fit end graphs
        if (c.exchanges.expert_capacity != 0.3 && part.takes_next()) cases.push_back(c);
    size_t by_graphs = 0, again = 0, number = 0;
    for (const MeshCase& c : cases) {
        CAPTURE(c.name());
        set_order(++number + uint64_t(world.rank()));
        const SharedRun kernels = run_on_shared_gpu(c, world, false),
                        graphs = run_on_shared_gpu(c, world, true), twice = run_on_shared_gpu(c, world, true);
        CHECK(graphs == kernels);
        CHECK(twice == graphs);
        by_graphs += graphs == kernels ? 1 : 0;
        again += twice == graphs ? 1 : 0;
        show(3, fmt::format("graphs equal kernel by kernel on {} of {} meshes", by_graphs, cases.size()));
        show(4, fmt::format("two equal runs have the same bits on {} of {} meshes", again, cases.size()));
    }
}

TEST_CASE_METHOD(SharedGpu, "shared NCCL: each order of operations ends", "[.][nccl-shared-order]") {
    std::vector<MeshCase> cases;
    Part part("orders of a shared GPU", world.size(), {1, 12});
    for (const MeshCase& c : meshes_for(world.size()))
        if (c.exchanges.expert_capacity != 0.3 && part.takes_next()) cases.push_back(c);
    size_t equal = 0;
    for (const MeshCase& c : cases) {
        CAPTURE(c.name());
        const SharedRun kernels = run_on_shared_gpu(c, world, false),
                        graphs = run_on_shared_gpu(c, world, true);
        CHECK(graphs == kernels);
        equal += graphs == kernels ? 1 : 0;
        show(5, fmt::format(
                    "NCCL_LAUNCH_ORDER_IMPLICIT = {}, at most 2 blocks: {} of {} meshes end with equal bits",
                    std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT"), equal, cases.size()));
    }
}

TEST_CASE_METHOD(SharedGpu, "shared NCCL: a rank that leaves does not block the others' queues",
                 "[.][nccl-shared]") {
    const Timer timer;
    const OwnedTensor a(Dtype::f32, {1 << 16}, "summed", the_gpu().memory());
    Communicator part = world.split(0, "part");
    try {
        Exec exec(the_gpu());
        NcclWorld connected(nccl, world, the_gpu());
        part.connect(connected);
        part.all_reduce(exec, a.view);
        exec.queue->finish();
        if (world.rank() > 0) part.all_reduce(exec, a.view);
        throw SystemError("on its way");
    } catch (const SystemError& error) {
        CHECK(std::string(error.what()).starts_with("on its way"));
    }
    world.barrier();
    show(6, fmt::format("the operations of ranks that another one left were aborted within {:.1f} s",
                        timer.seconds()));
}
