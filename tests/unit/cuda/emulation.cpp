// SPDX-License-Identifier: Apache-2.0
// The emulation must detect the errors that it exists for.
#include "cuda_runtime.h"
#include "support/catch.hpp"

#include <cmath>
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

using namespace coeus;

namespace {

void run(unsigned blocks, unsigned threads, size_t shared_bytes, const std::function<void()>& body) {
    emulation::run_grid(dim3(blocks), dim3(threads), shared_bytes, body);
}

float* shared() {
    return reinterpret_cast<float*>(emulation::thread().shared);
}

// Each thread reads the value that its neighbour has written into shared memory.
std::vector<float> shifted(bool with_barrier, uint64_t order) {
    std::vector<float> out(64);
    emulation::set_seed(order);
    run(1, 64, 64 * sizeof(float), [&] {
        shared()[threadIdx.x] = float(threadIdx.x);
        if (with_barrier) __syncthreads();
        out[threadIdx.x] = shared()[(threadIdx.x + 1) % 64];
    });
    return out;
}

}  // namespace

TEST_CASE(
    "emulation: a barrier makes writes of other threads visible, and some order reveals that it is missing") {
    const std::vector<float> expected = shifted(true, 1);
    CHECK(expected[5] == 6);
    CHECK(shifted(true, 2) == expected);
    CHECK(std::isnan(shifted(false, 1)[0] + shifted(false, 2)[0] + shifted(false, 3)[0] +
                     shifted(false, 4)[0]));
}

TEST_CASE("emulation: every lane of a warp runs once, and any two lanes run in either order") {
    constexpr unsigned lanes = 32, blocks = 2000;
    std::vector<std::vector<unsigned>> orders(blocks);
    emulation::set_seed(1);
    run(blocks, lanes, 0, [&] { orders[blockIdx.x].push_back(threadIdx.x); });
    std::vector<int> before(lanes * lanes);  // number of blocks in which one lane ran before another
    for (const std::vector<unsigned>& order : orders) {
        REQUIRE(std::set<unsigned>(order.begin(), order.end()).size() == lanes);
        REQUIRE(order.size() == lanes);
        for (size_t i = 0; i < lanes; ++i)
            for (size_t j = i + 1; j < lanes; ++j) ++before[order[i] * lanes + order[j]];
    }
    // each order occurs in about half of the blocks; few blocks would suffice for a race that shows only in
    // two orders
    for (size_t a = 0; a < lanes; ++a)
        for (size_t b = 0; b < lanes; ++b)
            if (a != b) CHECK(before[a * lanes + b] > int(blocks) / 4);
}

TEST_CASE("emulation: each block finds its shared memory full of NaN") {
    int nan = 0;
    run(3, 32, sizeof(float), [&] {
        if (threadIdx.x == 0) {
            nan += std::isnan(shared()[0]);
            shared()[0] = 1;
        }
    });
    CHECK(nan == 3);
}

TEST_CASE("emulation: shuffles and votes see the lanes of the mask") {
    std::vector<int> sums(64), votes(64);
    run(1, 64, 0, [&] {
        int value = int(threadIdx.x);
        for (int distance = 16; distance > 0; distance /= 2)
            value += __shfl_xor_sync(0xffffffffu, value, distance);
        sums[threadIdx.x] = value;
        votes[threadIdx.x] = int(__ballot_sync(0xffffffffu, threadIdx.x % 32 < 3));
    });
    CHECK(sums[7] == 31 * 32 / 2);
    CHECK(sums[40] == 31 * 32 / 2 + 32 * 32);
    CHECK(votes == std::vector<int>(64, 7));
    std::vector<int> taken(32);
    run(1, 32, 0, [&] {
        const bool is_low = threadIdx.x < 16;  // each half by itself
        const unsigned mask = is_low ? 0xffffu : 0xffff0000u;
        taken[threadIdx.x] = __shfl_sync(mask, int(threadIdx.x), is_low ? 3 : 30);
        votes[threadIdx.x] = int(__ballot_sync(mask, threadIdx.x % 2 == 0));
    });
    CHECK(taken[0] == 3);
    CHECK(taken[15] == 3);
    CHECK(taken[16] == 30);
    CHECK(taken[31] == 30);
    CHECK(votes[1] == 0x5555);
    CHECK(votes[17] == 0x55550000);
}

TEST_CASE("emulation: threads that wait in vain are named") {
    CHECK_THROWS_WITH(run(1, 64, 0,
                          [] {
                              if (threadIdx.x != 5) __syncthreads();
                          }),
                      Catch::Contains("waits in vain") && Catch::Contains("barrier of the block"));
    CHECK_THROWS_WITH(run(1, 32, 0,
                          [] {
                              if (threadIdx.x != 5) __shfl_sync(0xffffffffu, 1, 0);
                          }),
                      Catch::Contains("waits in vain") && Catch::Contains("__shfl_sync"));
    CHECK_THROWS_WITH(run(1, 32, 0,
                          [] {
                              if (threadIdx.x < 16) __shfl_sync(0xffffu, 1, 20);
                          }),
                      Catch::Contains("takes no part"));
    CHECK_THROWS_WITH(run(1, 32, 0, [] { __syncwarp(1u); }), Catch::Contains("not in its own mask"));
    CHECK_THROWS_WITH(run(1, 32, 0,
                          [] {
                              if (threadIdx.x == 5)
                                  __shfl_sync(0xffffffffu, 1.0, 0);
                              else
                                  __shfl_sync(0xffffffffu, 1, 0);
                          }),
                      Catch::Contains("waits in vain") && Catch::Contains("__shfl_sync"));
    CHECK_THROWS_WITH(run(1, 1025, 0, [] {}), Catch::Contains("at most 1024 threads"));
    // none of this reaches a later block
    int ended = 0;
    run(2, 64, 0, [&] {
        __syncthreads();
        ++ended;
    });
    CHECK(ended == 128);
}

TEST_CASE("emulation: what streams have to do is lost if a kernel fails, and later work is done") {
    cudaStream_t stream = nullptr;
    REQUIRE(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0) == cudaSuccess);
    int done = 0;
    emulation::give(stream, 1, [] { run(1, 32, 0, [] { emulation::fail("a broken rule"); }); });
    emulation::give(stream, 1, [&] { ++done; });
    CHECK_THROWS_WITH(cudaStreamSynchronize(stream), Catch::Contains("a broken rule"));
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(done == 0);
    emulation::give(stream, 1, [&] { ++done; });
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(done == 1);
    cudaStreamDestroy(stream);
}
