// SPDX-License-Identifier: Apache-2.0
// Ranks copy rows into each other's GPUs, and tokens of asynchronous tensor parallelism travel so.
#include "stand_ins/cuda/peers.hpp"

#include "coeus/base/log.hpp"
#include "coeus/comm/nccl_world.hpp"
#include "coeus/comm/peer_memory.hpp"
#include "coeus/device/step_graph.hpp"
#include "coeus/file/raw_file.hpp"
#include "gpu/gpu.hpp"
#include "stand_ins/nccl/nccl.hpp"
#include "support/catch.hpp"
#include "support/mesh_run.hpp"
#include "support/support.hpp"

#include <vector>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;
using emulation::NoPeers;

namespace {

// Forbids something to the last rank while it lives.
class Forbidden {
public:
    Forbidden(const Communicator& world, NoPeers what) {
        if (world.rank() == world.size() - 1) emulation::no_peers = what;
    }
    ~Forbidden() { emulation::no_peers = NoPeers::allowed; }
    Forbidden(const Forbidden&) = delete;
    Forbidden& operator=(const Forbidden&) = delete;
};

// The memory of a rank with places for `count` numbers from each rank.
struct OpenMemory {
    Exec exec;
    Buffer memory;
    std::string why_not;
    std::unique_ptr<PeerMemory> peers;

    explicit OpenMemory(const Communicator& world, int64_t count = 1, const std::string& host = "here")
        : exec(the_gpu()),
          memory(PeerMemory::bytes_of_numbers(world.size()) + padded_bytes(4 * count * world.size()),
                 "memory of peers", the_gpu().memory()),
          peers(PeerMemory::open(world, exec, memory, why_not, host)) {}
    Tensor places(const Communicator& world, int64_t count) const {
        return {
            memory.data() + PeerMemory::bytes_of_numbers(world.size()), Dtype::f32, {world.size(), count}};
    }
};

}  // namespace

TEST_CASE("copies between GPUs: rows arrive in any order of the GPUs' work, kernel by kernel and in graphs") {
    const Communicator world = Communicator::world("world");
    constexpr int64_t count = 1000;
    const int ranks = world.size(), rank = world.rank();
    OpenMemory own(world, count);
    REQUIRE(own.why_not.empty());
    REQUIRE(own.peers);
    const Tensor places = own.places(world, count);
    const OwnedTensor sent(Dtype::f32, {1, count}, "rows", the_gpu().memory());
    StepGraph graph("copies between GPUs");
    const size_t before = emulation::numbers_for_peers;
    for (int round = 1; round <= 6; ++round) {
        set_order(uint64_t(10 * round + rank));
        const std::vector<float> numbers(count, float(100 * rank + round));
        the_gpu().copy(sent.view.data, numbers.data(), sent.view.bytes());
        graph.give(own.exec, [&] {
            for (int step = 1; step < ranks; ++step) {
                const int from = (rank + ranks - step) % ranks;
                own.peers->send_receive(*own.exec.queue, sent, (rank + step) % ranks,
                                        places.slice_rows(rank, 1), places.slice_rows(from, 1), from);
            }
        });
        own.exec.queue->finish();
        std::vector<float> got(size_t(places.count()));
        the_gpu().copy(got.data(), places.data, places.bytes());
        for (int from = 0; from < ranks; ++from)
            for (const int64_t i : {int64_t(0), count - 1})
                if (from != rank) CHECK(got[size_t(from * count + i)] == float(100 * from + round));
        // what this rank said to others: it is ready, and rows have arrived
        CHECK(emulation::numbers_for_peers == before + size_t(2 * round * (ranks - 1)));
    }
    const Tensor outside(own.memory.data(), Dtype::f32, {1, count});
    CHECK_THROWS_WITH(own.peers->send_receive(*own.exec.queue, sent, 0, outside, outside, 0),
                      Contains("a place outside of the memory that others have opened"));
    CHECK_THROWS_WITH(own.peers->send_receive(*own.exec.queue, sent, 0, places.slice_cols(0, 10),
                                              places.slice_cols(0, 10), 0),
                      Contains("dense rows and equal sizes"));
}

TEST_CASE("copies between GPUs: all ranks know why one of them cannot") {
    const Communicator world = Communicator::world("world");
    const std::string last = fmt::format("{}", world.size() - 1);
    struct Case {
        NoPeers what;
        std::string why;
    };
    for (const auto& [what, why] :
         {Case{NoPeers::naming, "cudaIpcGetMemHandle reports \"operation not supported\""},
          Case{NoPeers::opening, "cudaIpcOpenMemHandle reports \"mapping of buffer object failed\""},
          Case{NoPeers::numbers, "the driver has no cuStreamWriteValue32 of CUDA 12"},
          Case{NoPeers::lost, "what rank " + last + " copies does not arrive at rank 0"}}) {
        CAPTURE(why);
        const Forbidden forbidden(world, what);
        const OpenMemory own(world);
        CHECK_FALSE(own.peers);
        CHECK_THAT(own.why_not, Contains(why));
    }
    const OpenMemory apart(world, 1, fmt::format("host{}", world.rank()));
    CHECK_FALSE(apart.peers);
    CHECK_THAT(apart.why_not, Contains("the ranks are on several hosts, such as host0 and host1"));
}

namespace {

struct Trained {
    std::map<std::string, std::vector<double>> weights, gradients;
    std::string log;
    size_t copies = 0;  // numbers for other ranks
};

// Three steps of asynchronous tensor parallelism. Collective.
Trained train_asynchronously(const Communicator& world, bool graphs, bool overlap, uint64_t order) {
    const TemporaryFolder folder;
    const std::string file = folder / "log";
    log::init({.rank = world.rank(), .file = file, .quiet = true});
    MeshCase c = {.mesh = {.tp = world.size()}, .model = tiny_config(), .types = {Dtype::f32, Dtype::f32}};
    c.model.grouped().kv_heads = 4;
    c.seq_len = 4 * world.size();
    c.exchanges.overlap_tokens = overlap;
    c.exchanges.tiles = {1, 1, 1 << 20};  // products of the rows of several ranks
    c.recompute = {.mode = RecomputeOptions::Mode::operations};
    c.device = &the_gpu();
    c.nccl = &nccl_stand_in();
    c.graphs = graphs;
    Trained trained;
    const size_t before = emulation::numbers_for_peers;
    {
        Mesh mesh(world.split(0, "world"), c.mesh);
        NcclWorld nccl(*c.nccl, mesh.world(), *c.device);
        mesh.connect(nccl);
        MeshRun run(c, mesh);
        for (int64_t step = 1; step <= 3; ++step) {
            set_order(order + uint64_t(100 * step + world.rank()));
            TestBatch batch = batch_of_step(c, uint64_t(step));
            CHECK(run.step(step, batch));
        }
        trained.weights = run.whole(&Storage::master);
        trained.gradients = run.whole(&Storage::gradient);
        trained.copies = emulation::numbers_for_peers - before;
        CHECK((run.engine.graph_nodes() > 0) == graphs);
        run.engine.forget_graphs();
    }
    log::init({});
    trained.log = read_text_file(file, 1 << 20);
    return trained;
}

}  // namespace

TEST_CASE("copies between GPUs: asynchronous tensor parallelism has the bits of messages, in graphs too") {
    const Communicator world = Communicator::world("world");
    const Trained copied = train_asynchronously(world, false, true, 1),
                  in_graphs = train_asynchronously(world, true, true, 2),
                  whole = train_asynchronously(world, false, false, 3);
    const std::string warning = "GPUs cannot copy tokens into each other's memory";
    for (const Trained* one : {&copied, &in_graphs}) {
        CHECK(one->copies > 100);
        CHECK_THAT(one->log, !Contains(warning));
    }
    CHECK(whole.copies == 0);
    CHECK(in_graphs.weights == copied.weights);
    CHECK(in_graphs.gradients == copied.gradients);
    const Forbidden forbidden(world, NoPeers::opening);
    const Trained sent = train_asynchronously(world, true, true, 4);
    CHECK(sent.copies == 0);
    CHECK(sent.weights == copied.weights);
    CHECK(sent.gradients == copied.gradients);
    // the first rank says it once
    const size_t first = sent.log.find(warning);
    CHECK((first != std::string::npos) == (world.rank() == 0));
    if (world.rank() == 0) {
        CHECK(sent.log.find(warning, first + 1) == std::string::npos);
        CHECK_THAT(sent.log,
                   Contains("mapping of buffer object failed") && Contains("so they send messages"));
    }
    // whole exchanges add in the order of NCCL
    for (const auto& [name, numbers] : whole.weights)
        for (size_t i = 0; i < numbers.size(); ++i)
            CHECK(copied.weights.at(name)[i] == Approx(numbers[i]).epsilon(1e-4).margin(1e-5));
}
