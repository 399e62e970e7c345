// SPDX-License-Identifier: Apache-2.0
// Messages between two ranks by NCCL: they arrive, other ranks do not wait for them, and the stand-in detects
// messages that cannot meet.
#include "coeus/base/error.hpp"
#include "coeus/comm/nccl_world.hpp"
#include "coeus/comm/point_to_point.hpp"
#include "coeus/file/json.hpp"
#include "coeus/observe/tracer.hpp"
#include "gpu/gpu.hpp"
#include "stand_ins/nccl/nccl.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <cmath>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

constexpr int64_t rows = 300;

struct MessageFixture {
    Communicator world = Communicator::world("world");
    Exec exec{the_gpu()};
    int rank = world.rank(), size = world.size();
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    NcclWorld nccl{nccl_stand_in(), world, the_gpu()};

    MessageFixture() { world.connect(nccl); }
};

// The tensor of a rank; `kind` makes tensors of the same rank different.
struct OnGpu {
    OwnedTensor gpu{Dtype::f32, {rows}, "message", the_gpu().memory()};

    OnGpu() = default;
    OnGpu(int rank, int kind) {
        OwnedTensor host(Dtype::f32, {rows});
        for (int64_t i = 0; i < rows; ++i) host.view.as<float>()[i] = value(rank, kind, i);
        the_gpu().copy(gpu.view.data, host.view.data, host.view.bytes());
    }
    bool is(int rank, int kind) const {
        OwnedTensor host(Dtype::f32, {rows});
        the_gpu().copy(host.view.data, gpu.view.data, host.view.bytes());
        for (int64_t i = 0; i < rows; ++i)
            if (!(host.view.as<float>()[i] == value(rank, kind, i))) return false;
        return true;
    }
    static float value(int rank, int kind, int64_t i) { return std::sin(float(100 * rank + 10 * kind + i)); }
};

}  // namespace

TEST_CASE_METHOD(MessageFixture, "NCCL: messages around a ring, both directions of a rank together") {
    for (const uint64_t seed : {1, 2, 3, 4}) {
        set_order(seed + uint64_t(rank));
        OnGpu here(rank, 1), coming;
        PointToPoint messages(world, 2, Sends::standard, exec);
        const int before = nccl_launches();
        messages.receive(1, coming.gpu, previous, 0);
        messages.send(0, here.gpu, next, 0);
        CHECK_THROWS_AS(messages.send(0, here.gpu, next, 0), LogicError);
        CHECK(nccl_launches() == before);
        messages.start();
        CHECK(nccl_launches() == before + 1);
        messages.wait_for_all();
        // the computation continues after the messages
        OnGpu copy;
        exec.queue->copy(copy.gpu.view.data, coming.gpu.view.data, coming.gpu.view.bytes());
        exec.queue->finish();
        CHECK(copy.is(previous, 1));
    }
}

TEST_CASE_METHOD(MessageFixture, "NCCL: a trace shows the waits for messages in the computation that waits") {
    OnGpu here(rank, 1), coming;
    Tracer tracer(rank, 16, Timestamps(exec));
    world.observe(&tracer);
    {
        PointToPoint messages(world, 2, Sends::standard, exec);
        messages.receive(1, coming.gpu, previous, 0);
        messages.send(0, here.gpu, next, 0);
        messages.wait_for_all();
    }
    world.observe(nullptr);
    const TemporaryFolder folder;
    tracer.write(folder / "trace.json");
    const JsonDocument trace = JsonDocument::read(folder / "trace.json");
    int waits = 0;
    for (const JsonView& event : trace.root()["traceEvents"].elements())
        if (event.string("ph") == "X") {
            CHECK(event.integer("tid") == 1);
            // the trace shows whole kernels, on the GPU's clock
            const double micro_seconds = event.number("dur");
            if (seconds_of_kernel() > 0) CHECK(micro_seconds == std::round(micro_seconds));
            ++waits;
        }
    CHECK(waits == 2);
}

TEST_CASE_METHOD(MessageFixture, "NCCL: messages of two ranks arrive in order, after the computation") {
    const int other = rank ^ 1;
    OnGpu first(rank, 1), second(rank, 2), a, b, own;
    for (const uint64_t seed : {1, 2, 3, 4}) {
        set_order(seed + uint64_t(rank));
        PointToPoint messages(world, 4, Sends::standard, exec);
        const auto pass = [&](int number, OnGpu& tensor, bool sends) {
            if (sends)
                messages.send(number, tensor.gpu, other, number);  // channels have no tags
            else
                messages.receive(number, tensor.gpu, other, number);
            messages.start();
        };
        const bool low = rank < other;
        // the message carries what the computation wrote last
        exec.queue->copy(own.gpu.view.data, first.gpu.view.data, first.gpu.view.bytes());
        pass(low ? 0 : 1, low ? own : a, low);
        if (!low) messages.wait(1);
        pass(low ? 2 : 3, low ? second : b, low);
        messages.wait_for_all();
        exec.queue->copy(own.gpu.view.data, second.gpu.view.data, second.gpu.view.bytes());
        exec.queue->finish();
        if (!low) CHECK((a.is(other, 1) && b.is(other, 2)));
    }
}

TEST_CASE_METHOD(MessageFixture, "NCCL: the stand-in detects messages to a wrong peer") {
    OnGpu here(rank, 1), coming;
    {
        PointToPoint messages(world, 2, Sends::standard, exec);
        messages.receive(1, coming.gpu, previous, 0);
        messages.send(0, here.gpu, (rank + 2) % size, 0);  // on two ranks: to itself
        messages.wait_for_all();
        CHECK_THROWS_WITH(exec.queue->finish(),
                          Contains(fmt::format("NCCL stand-in: the ranks wait for each other; this one for a "
                                               "receive from rank {}, a send to rank {}",
                                               previous, (rank + 2) % size)));
    }
    exec.queue->finish();
}

TEST_CASE_METHOD(MessageFixture, "NCCL: the stand-in detects messages in a wrong order") {
    OnGpu here(rank, 1), coming;
    {
        // all ranks send first, and receive afterwards
        PointToPoint messages(world, 2, Sends::standard, exec);
        messages.send(0, here.gpu, next, 0);
        messages.start();
        messages.receive(1, coming.gpu, previous, 0);
        messages.wait_for_all();
        CHECK_THROWS_WITH(exec.queue->finish(),
                          Contains(fmt::format("wait for each other; this one for a send to rank {}", next)));
    }
    exec.queue->finish();
}

// Messages of the same size would be exchanged without a sign of the error, since NCCL has no tags.
TEST_CASE_METHOD(MessageFixture, "NCCL: the stand-in detects messages whose ends have different orders") {
    OnGpu here(rank, 1), coming;
    PointToPoint messages(world, 1, Sends::standard, exec);
    if (const int other = rank ^ 1; rank < other) {
        messages.send(0, here.gpu.view.slice_rows(0, 7), other, 0);  // the larger message would follow
        messages.wait_for_all();
        exec.queue->finish();
    } else {
        messages.receive(0, coming.gpu, other, 1);
        messages.wait_for_all();
        CHECK_THROWS_WITH(exec.queue->finish(), Contains("this rank gave message 0 of 1200 elements"));
    }
    exec.queue->finish();
}
