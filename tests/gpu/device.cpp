// SPDX-License-Identifier: Apache-2.0
// A GPU's queues, and the contents of its memory.
#include "coeus/device/host_rows.hpp"
#include "coeus/kernels/kernels.hpp"
#include "coeus/plan/copy_rate.hpp"
#include "coeus/state/step_state.hpp"
#include "gpu/gpu.hpp"
#include "gpu/numbers.hpp"
#include "support/catch.hpp"

#include <vector>

using namespace coeus;
using namespace coeus::test;

TEST_CASE("a GPU has a compute capability, the host has none") {
    CHECK(the_gpu().architecture() >= 50);
    CHECK(the_gpu().architecture() < 1000);
    CHECK(host_device().architecture() == 0);
}

TEST_CASE("a GPU: points of a queue are distinct, and remain valid long after the queue passed them") {
    const Device& gpu = the_gpu();
    Exec first(gpu), second(gpu);
    Numbers a(gpu, 1), b(gpu, 0);
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

TEST_CASE("a GPU: a queue waits for an event as it was last recorded, and for nothing before that") {
    const Device& gpu = the_gpu();
    Exec first(gpu), second(gpu);
    Numbers a(gpu, 1), b(gpu, 0);
    const auto event = gpu.make_event();
    second.queue->wait_for(*event);
    CHECK(event->passed());
    float value = 0;
    for (int i = 1; i <= 100; ++i) {
        cuda_kernels().add(first, b.memory, a.memory);
        event->record(*first.queue);
        if (i % 10 > 0) continue;
        second.queue->wait_for(*event);
        second.queue->copy(&value, b.memory.view.data, sizeof value);
        second.queue->finish();
        CHECK(value == float(i));
        CHECK(event->passed());
    }
}

TEST_CASE("a GPU: the scalars of a step move to the host when read, and to the GPU when written") {
    const Device& gpu = the_gpu();
    Exec exec(gpu);
    exec.workspace = Arena(4096, "workspace", gpu.memory());
    StepState state(gpu);
    CHECK(state.last_read().clip == 1);
    state.stage({.learning_rate = 0.5, .loss_scale = 0.25, .step = 7});
    state.bring(exec);
    const OwnedTensor losses(Dtype::f32, {4}, "losses", gpu.memory());
    const std::vector<float> values = {1, 2, 3, 4};
    gpu.copy(losses.view.data, values.data(), losses.view.bytes());
    cuda_kernels().sum(exec, &state.scalars().loss, losses);
    CHECK(state.read(exec).loss == 10);
    cuda_kernels().sum(exec, &state.scalars().loss, Tensor(&state.scalars().loss_scale, Dtype::f64, {1}));
    CHECK(state.read(exec).loss == 10.25);
    CHECK(state.last_read().learning_rate == 0.5);
    state.stage({.step = 8});
    CHECK(state.last_read().step == 8);
    state.bring(exec);
    CHECK(state.read(exec).step == 8);
}

TEST_CASE("a GPU: the host writes and reads rows in pieces, each at its place") {
    const Device& gpu = the_gpu();
    for (const int64_t piece_bytes : {1, 12, 25, 1000}) {
        const OwnedTensor there(Dtype::f32, {7, 3}, "rows", gpu.memory());
        std::vector<int64_t> begun;
        write_rows(
            gpu, there,
            [&](Tensor rows, int64_t first) {
                begun.push_back(first);
                for (int64_t i = 0; i < rows.count(); ++i) rows.as<float>()[i] = float(first * 3 + i);
            },
            piece_bytes);
        CHECK(begun.size() == (piece_bytes < 24 ? 7 : piece_bytes == 25 ? 4 : 1));
        std::vector<float> read(21, -1);
        const Tensor some = there.view.slice_rows(1, 5);
        read_rows(
            gpu, some,
            [&](Tensor rows, int64_t first) {
                for (int64_t i = 0; i < rows.count(); ++i) read[size_t(first * 3 + i)] = rows.as<float>()[i];
            },
            piece_bytes);
        for (size_t i = 0; i < read.size(); ++i) CHECK(read[i] == (i < 15 ? float(i + 3) : -1));
    }
    read_rows(gpu, Tensor(nullptr, Dtype::f32, {0, 3}), [](Tensor, int64_t) { FAIL("there are no rows"); });
}

TEST_CASE("a GPU: a copy has a rate, takes at most an eighth of the free memory, and leaves none taken") {
    const Device& gpu = the_gpu();
    Exec exec(gpu);
    const int64_t before = gpu.taken_bytes();
    const CopyRate rate = copy_rate(exec, cuda_kernels());
    CHECK(rate.bytes_per_second > 0);
    CHECK(rate.bytes >= int64_t(1) << 20);
    CHECK(rate.bytes <= most_copied_bytes);
    CHECK(2 * rate.bytes <= (gpu.memory_bytes() - before) / 8);
    CHECK(gpu.taken_bytes() <= before);
}
