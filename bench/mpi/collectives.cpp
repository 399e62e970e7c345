// SPDX-License-Identifier: Apache-2.0
// The speed of our collectives next to MPI's own blocking ones: mpirun -n 2 build/bench/mpi_collectives. The
// measurements alternate; the figures are medians of 5, in microseconds per call.
// The calls come from one thread of each rank, then from two at once, each with its own communicator: in
// training, weights are gathered while gradients are summed. The threads of a rank share one core, as in
// training.
#include "coeus/base/clock.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "coeus/comm/communicator.hpp"
#include "coeus/comm/mpi.hpp"
#include "coeus/device/memory.hpp"

#include <fmt/core.h>
#include <mpi.h>

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <thread>
#include <vector>

using namespace coeus;

namespace {

constexpr int rounds = 5;

// The collectives of one thread, on its own communicators.
struct Caller {
    Communicator ours = Communicator::world("ours");
    MPI_Comm theirs = MPI_COMM_NULL;
    OwnedTensor part, whole;

    explicit Caller(int64_t bytes)
        : part(Dtype::f32, {bytes / 4}), whole(Dtype::f32, {bytes / 4 * ours.size()}) {
        MPI_Comm_dup(MPI_COMM_WORLD, &theirs);
    }
    ~Caller() { MPI_Comm_free(&theirs); }
    Caller(const Caller&) = delete;
    Caller& operator=(const Caller&) = delete;

    void gather() { ours.all_gather(whole, part); }
    void gather_by_mpi() {
        const int bytes = int(Tensor(part).bytes());
        MPI_Allgather(Tensor(part).data, bytes, MPI_BYTE, Tensor(whole).data, bytes, MPI_BYTE, theirs);
    }
    void sum() { ours.reduce_scatter(part, whole); }
    void sum_by_mpi() {
        MPI_Reduce_scatter_block(Tensor(whole).data, Tensor(part).data, int(Tensor(part).count()), MPI_FLOAT,
                                 MPI_SUM, theirs);
    }
};

// Seconds per call, if all of these make `calls` calls at the same time.
double seconds_of(const Communicator& world, int calls,
                  const std::vector<std::function<void()>>& side_by_side) {
    world.barrier();
    const Timer timer;
    std::vector<std::jthread> threads;
    for (const auto& work : side_by_side)
        threads.emplace_back([&work, calls] {
            for (int i = 0; i < calls; ++i) work();
        });
    threads.clear();
    return timer.seconds() / calls;
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

void measure(const Communicator& world, int64_t bytes) {
    Caller gathers(bytes), sums(bytes);
    const int calls = bytes >= 1 << 20 ? 5 : bytes >= 1 << 14 ? 50 : 200;
    const std::vector<std::vector<std::function<void()>>> ways = {
        {[&] { gathers.gather(); }},
        {[&] { gathers.gather_by_mpi(); }},
        {[&] { sums.sum(); }},
        {[&] { sums.sum_by_mpi(); }},
        {[&] { gathers.gather(); }, [&] { sums.sum(); }},
        {[&] { gathers.gather_by_mpi(); }, [&] { sums.sum_by_mpi(); }},
    };
    std::vector<std::vector<double>> seconds(ways.size());
    for (int round = 0; round < rounds; ++round)
        for (size_t i = 0; i < ways.size(); ++i) seconds[i].push_back(seconds_of(world, calls, ways[i]));
    if (world.rank() > 0) return;
    fmt::print("{:>9}", bytes_text(double(bytes)));
    for (const auto& values : seconds) fmt::print("{:>10.0f}", median(values) * 1e6);
    fmt::print("\n");
}

}  // namespace

int main(int argc, char** argv) {
    const MpiRuntime mpi(&argc, &argv);
    const Communicator world = Communicator::world("world");
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(size_t(world.rank()) % std::thread::hardware_concurrency(), &core);
    sched_setaffinity(0, sizeof core, &core);
    if (world.rank() == 0)
        fmt::print(
            "{} ranks, microseconds\n{:>9}{:>20}{:>20}{:>20}\n{:>9}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}\n",
            world.size(), "", "all_gather", "reduce_scatter", "both at once", "a rank", "ours", "MPI", "ours",
            "MPI", "ours", "MPI");
    for (const int64_t bytes : {64, 4 << 10, 64 << 10, 1 << 20, 16 << 20}) measure(world, bytes);
}
