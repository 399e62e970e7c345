// SPDX-License-Identifier: Apache-2.0
// The counter itself, with kernels whose counts are known. This file is compiled with -fsanitize=thread.
#include "stand_ins/cuda/memory_counter.hpp"
#include "support/catch.hpp"

#include <cuda_runtime.h>

using namespace coeus::emulation;

namespace {

/// Elements of device memory.
template <class T>
class OnDevice {
public:
    explicit OnDevice(size_t count) {
        void* memory = nullptr;
        REQUIRE(cudaMalloc(&memory, count * sizeof(T)) == cudaSuccess);
        data_ = static_cast<T*>(memory);
    }
    ~OnDevice() { cudaFree(data_); }
    OnDevice(const OnDevice&) = delete;
    OnDevice& operator=(const OnDevice&) = delete;
    T* get() const { return data_; }

private:
    T* data_ = nullptr;
};

struct Shape {
    unsigned blocks = 1, threads = 32;
    size_t shared_bytes = 0;
};

template <class... Parameters, class... Arguments>
MemoryCounts counts_of(const Shape& shape, void (*kernel)(Parameters...), Arguments... arguments) {
    MemoryCounter counter;
    cudaLaunchConfig_t config;
    config.gridDim = dim3(shape.blocks);
    config.blockDim = dim3(shape.threads);
    config.dynamicSmemBytes = shape.shared_bytes;
    REQUIRE(cudaLaunchKernelEx(&config, kernel, arguments...) == cudaSuccess);
    const std::vector<MemoryCounts> counts = counter.take();
    REQUIRE(counts.size() == 1);
    return counts.front();
}

struct alignas(16) Four {
    float values[4];
};

template <class T>
void copy_kernel(T* to, const T* from, unsigned distance) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    to[i] = from[i * distance];
}

void broadcast_kernel(float* to, const float* from) {
    to[threadIdx.x] = from[0];
}

void loop_kernel(float* to, const float* from, unsigned count) {
    for (unsigned i = threadIdx.x; i < count; i += blockDim.x) to[i] = from[i];
}

/// Each lane has a row, in which lanes make different numbers of steps. The barrier makes the next row begin
/// together again.
void rows_kernel(float* sums, const float* from, unsigned rows, unsigned width) {
    for (unsigned row = 0; row < rows; ++row) {
        for (unsigned i = threadIdx.x; i < width; i += 32) sums[i] += from[row * width + i];
        __syncwarp();
    }
}

void branch_kernel(float* to, const float* from, const float* others) {
    const unsigned i = threadIdx.x;
    if (i % 2 == 0)
        to[i] = from[i];
    else
        to[i + 32] = others[i];
}

template <class T>
void shared_kernel(unsigned distance) {
    T* const row = reinterpret_cast<T*>(thread().shared) + threadIdx.x * distance;
    *row = T{};
}

void matrices_kernel(unsigned pitch) {
    uint32_t parts[4];
    const unsigned lane = threadIdx.x;
    load_matrices(parts, thread().shared + lane % 16 * pitch + lane / 16 * 16, false);
}

void copies_kernel(const Four* from, bool some) {
    copy_async(thread().shared + threadIdx.x * 16, some || threadIdx.x < 8 ? from + threadIdx.x : nullptr,
               16);
    wait_for_copies();
}

}  // namespace

TEST_CASE("the memory counter: adjacent elements of a warp are one request of as few sectors as possible") {
    const OnDevice<float> from(1024), to(1024);
    const auto counts = counts_of({2, 64}, copy_kernel<float>, to.get(), from.get(), 1);
    CHECK(counts.requests == 8);
    CHECK(counts.read_sectors == 4 * 4);
    CHECK(counts.written_sectors == 4 * 4);
    CHECK(counts.shared_accesses == 0);
}

TEST_CASE("the memory counter: requests of 1, 2, 8 and 16 bytes a lane") {
    const OnDevice<Four> from(64), to(64);
    const auto counts = [&]<class T>(T) {
        return counts_of({}, copy_kernel<T>, reinterpret_cast<T*>(to.get()), reinterpret_cast<T*>(from.get()),
                         1u);
    };
    CHECK(counts(uint8_t()).read_sectors == 1);
    CHECK(counts(uint16_t()).read_sectors == 2);
    CHECK(counts(double()).read_sectors == 8);
    CHECK(counts(Four()).read_sectors == 16);
    CHECK(counts(Four()).requests == 2);
}

TEST_CASE("the memory counter: distances between lanes, and rows off alignment, cost sectors") {
    const OnDevice<float> from(2048), to(2048);
    CHECK(counts_of({}, copy_kernel<float>, to.get(), from.get(), 2).read_sectors == 8);
    CHECK(counts_of({}, copy_kernel<float>, to.get(), from.get(), 8).read_sectors == 32);
    CHECK(counts_of({}, copy_kernel<float>, to.get(), from.get(), 50).read_sectors == 32);
    CHECK(counts_of({}, copy_kernel<float>, to.get(), from.get() + 1, 1).read_sectors == 5);
}

TEST_CASE("the memory counter: lanes that read the same element share a sector") {
    const OnDevice<float> from(32), to(32);
    const auto counts = counts_of({}, broadcast_kernel, to.get(), from.get());
    CHECK(counts.read_sectors == 1);
    CHECK(counts.written_sectors == 4);
}

TEST_CASE("the memory counter: lanes leave loops at different steps") {
    const OnDevice<float> from(256), to(256);
    auto counts = counts_of({}, loop_kernel, to.get(), from.get(), 70);
    CHECK(counts.requests == 2 * 3);
    CHECK(counts.read_sectors == 4 + 4 + 1);
    // without the barrier after each row the lanes of the first would be counted with others of the second
    counts = counts_of({}, rows_kernel, to.get(), from.get(), 2, 40);
    CHECK(counts.requests == 2 * 2 * 3);
    CHECK(counts.read_sectors == 2 * 2 * (4 + 1));
    CHECK(counts.written_sectors == 2 * (4 + 1));
}

TEST_CASE("the memory counter: the two ways of a branch are two requests") {
    const OnDevice<float> from(32), others(32), to(64);
    const auto counts = counts_of({}, branch_kernel, to.get(), from.get(), others.get());
    CHECK(counts.requests == 4);
    CHECK(counts.read_sectors == 8);
    CHECK(counts.written_sectors == 8);
}

TEST_CASE("the memory counter: passes through the banks of shared memory") {
    const auto passes = [](auto kernel, unsigned distance) {
        const auto counts = counts_of({1, 32, 32 * 1024}, kernel, distance);
        CHECK(counts.requests == 0);
        return std::pair(counts.shared_accesses, counts.worst_passes);
    };
    using Passes = std::pair<int64_t, int64_t>;
    CHECK(passes(shared_kernel<float>, 1) == Passes(1, 1));
    CHECK(passes(shared_kernel<float>, 2) == Passes(1, 2));
    CHECK(passes(shared_kernel<float>, 33) == Passes(1, 1));
    CHECK(passes(shared_kernel<float>, 32) == Passes(1, 32));
    CHECK(passes(shared_kernel<float>, 0) == Passes(1, 1));
    CHECK(passes(shared_kernel<uint16_t>, 1) == Passes(1, 1));
    CHECK(passes(shared_kernel<uint16_t>, 64) == Passes(1, 32));
    CHECK(passes(shared_kernel<double>, 1) == Passes(2, 1));
    CHECK(passes(shared_kernel<double>, 2) == Passes(2, 2));
    CHECK(passes(shared_kernel<Four>, 1) == Passes(4, 1));
    CHECK(passes(shared_kernel<Four>, 3) == Passes(4, 1));
    CHECK(passes(shared_kernel<Four>, 2) == Passes(4, 2));
    CHECK(passes(shared_kernel<Four>, 8) == Passes(4, 8));
}

TEST_CASE("the memory counter: rows of ldmatrix need an odd number of pieces of 16 bytes between them") {
    CHECK(counts_of({1, 32, 8192}, matrices_kernel, 128 + 16).worst_passes == 1);
    CHECK(counts_of({1, 32, 8192}, matrices_kernel, 128).worst_passes == 8);
    CHECK(counts_of({1, 32, 8192}, matrices_kernel, 128 + 32).worst_passes == 2);
    CHECK(counts_of({1, 32, 8192}, matrices_kernel, 128 + 16).shared_accesses == 4);
}

TEST_CASE("the memory counter: asynchronous copies read global memory and write shared memory") {
    const OnDevice<Four> from(32);
    auto counts = counts_of({1, 32, 512}, copies_kernel, from.get(), true);
    CHECK(counts.read_sectors == 16);
    CHECK(counts.requests == 1);
    CHECK(counts.shared_accesses == 4);
    CHECK(counts.worst_passes == 1);
    counts = counts_of({1, 32, 512}, copies_kernel, from.get(), false);  // the others write zeros
    CHECK(counts.read_sectors == 4);
    CHECK(counts.shared_accesses == 4);
}

TEST_CASE("the memory counter: the order of threads does not matter") {
    const OnDevice<float> from(256), to(256);
    for (const uint64_t seed : {1, 2, 3, 4}) {
        set_seed(seed);
        CHECK(counts_of({2}, rows_kernel, to.get(), from.get(), 2, 40).read_sectors == 2 * 2 * 2 * (4 + 1));
    }
}
