// SPDX-License-Identifier: Apache-2.0
// What is seen on the emulated GPU alone: forks and joins that are missing, memory that is short, no GPU.
#include "coeus/base/error.hpp"
#include "coeus/device/stream.hpp"
#include "coeus/kernels/kernels.hpp"
#include "emulation/block.hpp"
#include "emulation/runtime.hpp"
#include "gpu/numbers.hpp"

#include <catch2/catch.hpp>

using namespace coeus;
using namespace coeus::test;

namespace {

// The computation makes 1 of 0, a stream beside it adds that to `sum`, and the computation doubles the sum.
float two_streams(const Device& gpu, Stream::Mode mode, bool fork, bool join) {
    Numbers from(gpu, 0), one(gpu, 1), sum(gpu, 10);  // streams end before them
    Exec computation(gpu), host;
    Stream beside(mode, fork ? computation : host);
    Exec loose(gpu);  // a queue that waits for nobody
    Exec& side = fork ? beside.exec() : loose;
    const Kernels& k = cuda_kernels();
    k.add(computation, from.memory, one.memory);
    Pending pending = beside.run([&] { k.add(side, sum.memory, from.memory); });
    if (join)
        pending.join();
    else
        pending.forget();
    k.add(computation, sum.memory, sum.memory);
    computation.queue->finish();
    side.queue->finish();
    return sum.first();
}

}  // namespace

TEST_CASE("a GPU: streams fork from the computation and join it") {
    const auto gpu = open_gpu(0);
    bool fork_shows = false, join_shows = false;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        emulation::set_seed(seed);
        for (const auto mode : {Stream::Mode::eager, Stream::Mode::threaded, Stream::Mode::deferred}) {
            CHECK(two_streams(*gpu, mode, true, true) == 22);
            join_shows = join_shows || two_streams(*gpu, mode, true, false) != 22;
        }
        fork_shows = fork_shows || two_streams(*gpu, Stream::Mode::eager, false, true) != 22;
    }
    CHECK(fork_shows);
    CHECK(join_shows);
}

TEST_CASE("a GPU: memory is counted, and too much of it is an error that says for what") {
    const auto gpu = open_gpu(0);
    const int64_t before = gpu->peak_bytes();
    {
        const Buffer some(1 << 20, "some", gpu->memory());
        CHECK_FALSE(some.memory().is_host());
    }
    const Buffer less(1 << 10, "less", gpu->memory());
    CHECK(gpu->peak_bytes() == before + (1 << 20));
    CHECK_THROWS_WITH(Buffer(int64_t(1) << 40, "all the weights", gpu->memory()),
                      Catch::Contains("cannot get 1.00 TiB of emulated GPU for all the weights") &&
                          Catch::Contains("out of memory"));
    CHECK(gpu->bus_id() == "0000:01:00.0");
}

TEST_CASE("no GPU: why") {
    emulation::set_gpus(0);
    CHECK(visible_gpus() == 0);
    CHECK_THAT(why_no_gpu(), Catch::Contains("no CUDA-capable device is detected"));
    CHECK_THROWS_WITH(open_gpu(0), Catch::Contains("no CUDA-capable device is detected"));
    emulation::set_gpus(1);
    CHECK(visible_gpus() == 1);
}
