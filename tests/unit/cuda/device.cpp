// SPDX-License-Identifier: Apache-2.0
// A GPU's memory, queues and streams, on the emulated one.
#include "coeus/base/error.hpp"
#include "coeus/device/stream.hpp"
#include "coeus/kernels/kernels.hpp"
#include "coeus/state/step_state.hpp"
#include "emulation/block.hpp"
#include "emulation/runtime.hpp"

#include <catch2/catch.hpp>

#include <vector>

using namespace coeus;

namespace {

constexpr int64_t count = 64;

// Numbers on a GPU.
struct Numbers {
    const Device& device;
    OwnedTensor memory;
    Numbers(const Device& d, float value)
        : device(d), memory(Dtype::f32, {count}, "numbers", d.memory()) {
        set(value);
    }
    void set(float value) {
        const std::vector<float> all(count, value);
        device.copy(memory.view.data, all.data(), memory.view.bytes());
    }
    float first() const {
        float value = 0;
        device.copy(&value, memory.view.data, sizeof value);
        return value;
    }
};

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

TEST_CASE("a GPU: points of a queue are told apart, and may be long past") {
    const auto gpu = open_gpu(0);
    Exec first(*gpu), second(*gpu);
    Numbers a(*gpu, 1), b(*gpu, 0);
    const Kernels& k = cuda_kernels();
    std::vector<int64_t> points;
    for (int i = 0; i < 100; ++i) {
        k.add(first, b.memory, a.memory);
        points.push_back(first.queue->mark());
    }
    second.queue->wait_for(*first.queue, points.back());
    float value = 0;
    second.queue->copy(&value, b.memory.view.data, sizeof value);
    second.queue->finish();
    CHECK(value == 100);
    first.queue->finish(points.front());
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

TEST_CASE("a GPU: the scalars of a step are the host's when read, and the GPU's when written") {
    const auto gpu = open_gpu(0);
    Exec exec(*gpu);
    exec.workspace = Arena(4096, "workspace", gpu->memory());
    StepState state(*gpu);
    CHECK(state.last_read().clip == 1);
    state.write(exec, {.learning_rate = 0.5, .loss_scale = 0.25, .step = 7});
    const OwnedTensor losses(Dtype::f32, {4}, "losses", gpu->memory());
    const std::vector<float> values = {1, 2, 3, 4};
    gpu->copy(losses.view.data, values.data(), losses.view.bytes());
    cuda_kernels().sum(exec, &state.scalars().loss, losses);
    CHECK(state.read(exec).loss == 10);
    CHECK(state.last_read().learning_rate == 0.5);
    state.write(exec, {});
    state.write(exec, {.step = 8});  // what is on its way is not overwritten
    CHECK(state.read(exec).step == 8);
}

TEST_CASE("no GPU: why") {
    emulation::set_gpus(0);
    CHECK(visible_gpus() == 0);
    CHECK_THAT(why_no_gpu(), Catch::Contains("no CUDA-capable device is detected"));
    CHECK_THROWS_WITH(open_gpu(0), Catch::Contains("no CUDA-capable device is detected"));
    emulation::set_gpus(1);
    CHECK(visible_gpus() == 1);
}
