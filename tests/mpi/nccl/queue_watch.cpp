// SPDX-License-Identifier: Apache-2.0
// The errors that a QueueWatch detects in NCCL: operations that do not end, operations that other ranks never
// start, and failed communicators.
#include "coeus/base/error.hpp"
#include "coeus/comm/communicator.hpp"
#include "coeus/comm/nccl_world.hpp"
#include "gpu/gpu.hpp"
#include "stand_ins/nccl/nccl.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <atomic>
#include <thread>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

// A watch on a clock that the test sets.
struct Watched {
    std::atomic<double> now = 0;
    std::string told;
    int failures = 0;
    QueueWatch watch{{.who = "rank 5 on host a, GPU b",
                      .fail =
                          [this](const std::string& message) {
                              told = message;
                              ++failures;
                          },
                      .clock = [this] { return now.load(); }}};
    Communicator world = Communicator::world("world");
    Exec exec{the_gpu()};

    Watched() { watch.allow(100, "comm.train_timeout_seconds"); }
    void look_at(double time) {
        now = time;
        watch.look();
    }
};

OwnedTensor on_gpu(int64_t count) {
    return {Dtype::f32, {count}, "watched", the_gpu().memory()};
}

std::function<void()> before_start;

}  // namespace

TEST_CASE_METHOD(Watched, "watch: work that ends in time, group by group, is not reported") {
    NcclWorld nccl(nccl_stand_in(), world, the_gpu(), &watch);
    world.connect(nccl);
    const OwnedTensor a = on_gpu(8), b = on_gpu(8 * world.size());
    for (int step = 0; step < 200; ++step) {  // more operations than the watch remembers
        world.all_reduce(exec, a);
        world.grouped(exec, [&] {
            world.all_reduce(exec, a);
            world.all_gather(exec, b, b.view.slice_rows(world.rank() * 8, 8));
        });
        if (step % 80 == 79) {
            // the device has not reached it: it may be busy with other work for a long time
            look_at(now + 1000);
            exec.queue->finish();
        }
        if (step % 7 == 0) look_at(now + 60);
    }
    exec.queue->finish();
    look_at(now + 1000);
    look_at(now + 1000);
    CHECK(told.empty());
    // the numbers are those of all ranks, however far the device had got
    const std::vector<OperationLine> lines = FlightRecorder::own().lines();
    CHECK(std::ranges::any_of(lines, [](const OperationLine& line) {
        return std::string(line.name.data()) == "world by NCCL" && line.collectives == 1 + 2 * 200;
    }));
}

TEST_CASE_METHOD(Watched, "watch: the start of a communicator that does not end") {
    nccl_stand_in();
    nccl_hold_starts(true);
    std::thread other([&] {
        while (nccl_starts_held() == 0) std::this_thread::yield();
        for (const double time : {0.0, 99.0, 101.0}) look_at(time);
        nccl_hold_starts(false);
    });
    const NcclWorld nccl(nccl_stand_in(), world, the_gpu(), &watch);
    other.join();
    CHECK_THAT(told, Contains("start (operation 1, ") &&
                         Contains("between the ranks of world has not ended after 101 s"));
    CHECK(failures == 1);
}

TEST_CASE_METHOD(Watched, "watch: an operation that another rank never starts") {
    const OwnedTensor a = on_gpu(8);
    try {
        NcclWorld nccl(nccl_stand_in(), world, the_gpu(), &watch);
        world.connect(nccl);
        world.all_reduce(exec, a);
        exec.queue->finish();
        std::thread waits;
        if (world.rank() == 0) {
            world.all_reduce(exec, a);
            waits = std::thread([&] { exec.queue->finish(); });
            for (double time = 0; told.empty(); time += 30) look_at(time);
            look_at(now + 1000);
            CHECK(failures == 1);
            CHECK_THAT(told, Contains("rank 5 on host a, GPU b: all_reduce (operation 3, 32 B) between the "
                                      "ranks of world has not ended after 1"));
            CHECK_THAT(told,
                       Contains(" s (comm.train_timeout_seconds = 100): another rank has not reached it"));
        }
        struct Join {
            std::thread& thread;
            ~Join() {
                if (thread.joinable()) thread.join();
            }
        };
        const Join join{waits};
        // as at the end of a run with an error: the queue stops waiting
        if (world.rank() == 0) nccl_abort_all();
        throw SystemError("on its way");
    } catch (const SystemError&) {
    }
    CHECK(nccl_live() == 0);
}

TEST_CASE_METHOD(Watched, "watch: a start that another rank never joins") {
    NcclLibrary library = nccl_stand_in();
    before_start = [this] {
        look_at(now + 10);
        CHECK(told.empty());
        look_at(now + 101);
    };
    library.comm_init_rank = [](nccl::Comm* comm, int ranks, nccl::UniqueId id, int rank) {
        before_start();
        return nccl_stand_in().comm_init_rank(comm, ranks, id, rank);
    };
    NcclWorld nccl(library, world, the_gpu(), &watch);
    CHECK_THAT(told,
               Contains("start (operation 1, 0 B) between the ranks of world has not ended after 101 s"));
}

TEST_CASE_METHOD(Watched, "watch: a failed communicator") {
    NcclWorld nccl(nccl_stand_in(), world, the_gpu(), &watch);
    world.connect(nccl);
    look_at(1);
    CHECK(told.empty());
    nccl_set_state(nccl::Result::remote_error);
    look_at(2);
    nccl_set_state(nccl::Result::success);
    CHECK_THAT(told, Contains("rank 5 on host a, GPU b: the communicator between the ranks of world failed: "
                              "remote process exited or there was a network error: a rank is gone (no "
                              "operation under way)"));
}

TEST_CASE_METHOD(Watched, "watch: an operation may be given extra time") {
    QueueWatch::Line line(watch, "world", nullptr, nullptr);
    line.begin("step", 0, nullptr, 50);
    CHECK(FlightRecorder::own().operations().back().allowance == 50);
    look_at(10);
    look_at(155);
    CHECK(told.empty());
    look_at(161);
    CHECK_THAT(told, Contains("step (operation 1, 0 B) between the ranks of world has not ended after 151 s "
                              "(comm.train_timeout_seconds = 100, and 50 of its own): another rank"));
    line.end(nullptr);
}

TEST_CASE("watch: its thread checks on its own") {
    std::atomic<bool> told = false;
    std::string message;
    QueueWatch watch({.who = "who", .fail = [&](const std::string& text) {
                          if (!told) message = text;
                          told = true;
                      }});
    watch.allow(0.001, "an option");
    QueueWatch::Line line(watch, "ranks", nullptr, nullptr);
    line.begin("broadcast", 4, nullptr);
    watch.start();
    while (!told) std::this_thread::yield();
    CHECK_THAT(message, Contains("broadcast (operation ") && Contains(", 4 B) between the ranks of ranks") &&
                            Contains("an option"));
    line.end(nullptr);
}
