// SPDX-License-Identifier: Apache-2.0
// Collectives by NCCL give the results of those on the host. The tests use a stand-in for NCCL.
#include "coeus/base/error.hpp"
#include "coeus/comm/nccl_world.hpp"
#include "coeus/file/json.hpp"
#include "coeus/observe/tracer.hpp"
#include "gpu/gpu.hpp"
#include "stand_ins/nccl/nccl.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"
#include "support/row_exchange.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

constexpr Dtype summed[] = {Dtype::f64, Dtype::f32, Dtype::bf16, Dtype::i32, Dtype::i64};

// The same elements on the host and on the GPU.
struct Twin {
    OwnedTensor host, gpu;

    Twin(Dtype dtype, int64_t count, int rank)
        : host(dtype, {count}), gpu(dtype, {count}, "twin", the_gpu().memory()) {
        for (int64_t i = 0; i < count; ++i) set(i, std::sin(double(i % 1009) + 1000.0 * rank));
        the_gpu().copy(gpu.view.data, host.view.data, host.view.bytes());
    }
    bool same() const {
        OwnedTensor there(host.view.dtype, host.view.shape);
        the_gpu().copy(there.view.data, gpu.view.data, there.view.bytes());
        return std::memcmp(there.view.data, host.view.data, size_t(there.view.bytes())) == 0;
    }

private:
    void set(int64_t i, double value) {
        switch (host.view.dtype) {
            case Dtype::f64: host.view.as<double>()[i] = value; break;
            case Dtype::f32: host.view.as<float>()[i] = float(value); break;
            case Dtype::bf16: host.view.as<bf16>()[i] = bf16(float(value)); break;
            case Dtype::i32: host.view.as<int32_t>()[i] = int32_t(1000 * value); break;
            case Dtype::i64: host.view.as<int64_t>()[i] = int64_t(1e6 * value); break;
            default: host.view.as<uint8_t>()[i] = uint8_t(100 + 100 * value);
        }
    }
};

struct Fixture {
    Communicator world = Communicator::world("world");
    Exec exec{the_gpu()};
    int rank = world.rank(), size = world.size();
    NcclWorld nccl{nccl_stand_in(), world, the_gpu()};

    Fixture() { world.connect(nccl); }
    Tensor own(Tensor all) const { return all.slice_rows(rank * (all.count() / size), all.count() / size); }
};

// The text of the error that a call throws: "no error" if there is none, "different texts" if the ranks
// differ.
template <class Call>
std::string error_of(const Call& call) {
    try {
        call();
    } catch (const SystemError& error) {
        return error.what();
    }
    return "no error";
}

}  // namespace

TEST_CASE_METHOD(Fixture, "NCCL: sums equal those of the host, for every type that is summed") {
    for (const Dtype dtype : summed)
        for (const int64_t n : {1, 3, 1000}) {
            INFO(name_of(dtype) << " " << n);
            Twin whole(dtype, n, rank), parts(dtype, n * size, rank);
            world.all_reduce(whole.host);
            world.all_reduce(exec, whole.gpu);
            world.reduce_scatter(own(parts.host), parts.host);  // in place
            world.reduce_scatter(exec, own(parts.gpu), parts.gpu);
            exec.queue->finish();
            CHECK(whole.same());
            OwnedTensor there(dtype, {n});
            the_gpu().copy(there.view.data, own(parts.gpu).data, there.view.bytes());
            CHECK(std::memcmp(there.view.data, own(parts.host).data, size_t(there.view.bytes())) == 0);

            Twin in(dtype, n * size, rank), out(dtype, n, rank);
            world.reduce_scatter(out.host, in.host);
            world.reduce_scatter(exec, out.gpu, in.gpu);
            exec.queue->finish();
            CHECK(out.same());
        }
}

TEST_CASE_METHOD(Fixture, "NCCL: gathers, exchanges and passing on give the host's results") {
    for (const Dtype dtype : exchanged_types)
        for (const int64_t n : {1, 7, 3000}) {
            INFO(name_of(dtype) << " " << n);
            Twin all(dtype, n * size, rank), other(dtype, n * size, rank + 10), part(dtype, n, rank),
                turned(dtype, n * size, 0), passed(dtype, n, 0);
            world.all_gather(all.host, own(all.host));  // in place
            world.all_gather(exec, all.gpu, own(all.gpu));
            world.all_gather(other.host, part.host);
            world.all_gather(exec, other.gpu, part.gpu);
            world.all_to_all(turned.host, other.host);
            world.all_to_all(exec, turned.gpu, other.gpu);
            const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
            world.send_receive(part.host, next, passed.host, previous);
            world.send_receive(exec, part.gpu, next, passed.gpu, previous);
            exec.queue->finish();
            CHECK(all.same());
            CHECK(other.same());
            CHECK(turned.same());
            CHECK(passed.same());
        }
}

TEST_CASE_METHOD(Fixture, "NCCL: rows of any counts arrive, also as work of a stream") {
    for (const Dtype dtype : exchanged_types)
        for (const int64_t scale : {1, 500}) CHECK(wrong_row_exchanges(world, exec, dtype, scale) == "");
    for (const auto mode : {Stream::Mode::eager, Stream::Mode::threaded, Stream::Mode::deferred}) {
        Stream beside(mode, exec);
        CHECK(wrong_row_exchanges(world, exec, Dtype::f32, 3, &beside) == "");
    }
}

TEST_CASE_METHOD(Fixture, "NCCL: an exchange of rows is one group, without empty messages") {
    // rank r sends r rows to each rank
    const int64_t all = size * (size - 1) / 2;
    const Twin in(Dtype::f32, rank, rank), out(Dtype::f32, all, 0), also(Dtype::f32, all, 0);
    const std::vector<RowRange> from(size_t(size), {0, rank});
    std::vector<RowRange> to;
    for (int peer = 0; peer < size; ++peer) to.push_back({peer * (peer - 1) / 2, peer});
    world.all_to_all(out.host, to, in.host, from);
    world.all_to_all(also.host, to, in.host, from);
    const int launches = nccl_launches(), messages = nccl_messages();
    world.all_to_all(exec, out.gpu, to, in.gpu, from);
    CHECK(nccl_launches() == launches + 1);
    const int each = size - 1 + (rank == 0 ? 0 : size);
    CHECK(nccl_messages() == messages + each);
    world.grouped(exec, [&] {
        world.all_to_all(exec, out.gpu, to, in.gpu, from);
        world.all_to_all(exec, also.gpu, to, in.gpu, from);
        CHECK(nccl_launches() == launches + 1);
    });
    CHECK(nccl_launches() == launches + 2);
    CHECK(nccl_messages() == messages + 3 * each);
    exec.queue->finish();
    CHECK(out.same());
    CHECK(also.same());

    const std::vector<RowRange> none(size_t(size), {0, 0});
    world.all_to_all(exec, out.gpu, none, in.gpu, none);
    CHECK(nccl_launches() == launches + 2);
}

TEST_CASE_METHOD(Fixture, "NCCL: calls that are grouped begin together") {
    Twin a(Dtype::f32, 5 * size, rank), b(Dtype::f32, 9 * size, rank), c(Dtype::f32, 3, rank);
    for (Twin* twin : {&a, &b}) world.all_gather(twin->host, own(twin->host));
    world.all_reduce(c.host);
    const int before = nccl_launches();
    world.grouped(exec, [&] {
        world.all_gather(exec, a.gpu, own(a.gpu));
        world.all_gather(exec, b.gpu, own(b.gpu));
        world.all_reduce(exec, c.gpu);
        CHECK(nccl_launches() == before);
    });
    CHECK(nccl_launches() == before + 1);
    exec.queue->finish();
    CHECK(a.same());
    CHECK(b.same());
    CHECK(c.same());
}

TEST_CASE_METHOD(Fixture, "NCCL: calls of one communicator begin in order, on whichever queues") {
    Exec other(the_gpu());
    for (const uint64_t seed : {1, 2, 3, 4}) {
        set_order(seed + uint64_t(rank));  // the queues of the ranks run in different orders
        Twin a(Dtype::f32, 5, rank), b(Dtype::f32, 9, rank);
        for (int i = 0; i < 4; ++i) {
            world.all_reduce(a.host);
            world.all_reduce(exec, a.gpu);
            world.all_reduce(b.host);
            world.all_reduce(other, b.gpu);
        }
        exec.queue->finish();
        other.queue->finish();
        CHECK(a.same());
        CHECK(b.same());
    }
}

TEST_CASE("NCCL: the observer sees each call once") {
    struct Seen : CommunicationObserver {
        std::string text;
        int ended = 0;
        int64_t begin(const std::string& communicator, const char* operation, int64_t bytes,
                      const std::source_location&, const Queue*) override {
            text += fmt::format("{}: {} {}; ", communicator, operation, bytes);
            return 0;
        }
        void end(int64_t) override { ++ended; }
    } seen;
    Fixture f;
    f.world.observe(&seen);
    Twin all(Dtype::f32, 4 * f.size, f.rank);
    f.world.all_gather(f.exec, all.gpu, f.own(all.gpu));
    f.world.all_reduce(f.exec, all.gpu);
    const Twin two(Dtype::f32, 2, f.rank);
    std::vector<RowRange> to(size_t(f.size), {0, 0}), from = to;
    from[0] = {0, 2};  // all ranks send two rows to rank 0
    for (int peer = 0; f.rank == 0 && peer < f.size; ++peer) to[size_t(peer)] = {2 * peer, 2};
    f.world.all_to_all(f.exec, all.gpu, to, two.gpu, from);
    f.exec.queue->finish();
    CHECK(seen.text == fmt::format("world: all_gather {0}; world: all_reduce {0}; world: all_to_all {1}; ",
                                   16 * f.size, 8 * (f.rank == 0 ? f.size : 1)));
    CHECK(seen.ended == 3);
}

TEST_CASE_METHOD(Fixture,
                 "NCCL: a trace has the times of the queues, and for a group that of its first call") {
    Exec beside(the_gpu());
    Twin a(Dtype::f32, 5, rank), b(Dtype::f32, 9, rank), all(Dtype::f32, 4 * size, rank);
    Tracer tracer(rank, 16, Timestamps(exec));
    world.observe(&tracer);
    world.all_reduce(beside, a.gpu);
    const auto communication = [&] { return tracer.communication().at("world"); };
    CHECK(communication().seconds > 0);
    CHECK(communication().exposed == 0);  // nothing waits for it
    {
        tracer.begin_exchange(Exchange::gather_weights, 0);
        exec.queue->wait_for(*beside.queue, beside.queue->mark());
        tracer.end();
    }
    world.all_gather(exec, all.gpu, own(all.gpu));
    const Tracer::Communication two = communication();
    CHECK(two.calls == 2);
    CHECK(two.exposed > 0);
    tracer.clear();
    world.grouped(beside, [&] {
        world.all_reduce(beside, a.gpu);
        world.all_reduce(beside, b.gpu);
    });
    CHECK(communication().calls == 2);
    CHECK(communication().seconds > 0);
    world.observe(nullptr);
    beside.queue->finish();
    const TemporaryFolder folder;
    tracer.write(folder / "trace.json");
    const JsonDocument trace = JsonDocument::read(folder / "trace.json");
    std::vector<double> times;
    for (const JsonView& event : trace.root()["traceEvents"].elements())
        if (event.string("ph") == "X") {
            CHECK(event.integer("tid") == 2);  // the row of neither actions nor computation
            times.push_back(event.number("dur"));
        }
    REQUIRE(times.size() == 2);
    CHECK(times[0] > 0);
    CHECK(times[1] == 0);
}

TEST_CASE_METHOD(Fixture, "NCCL: errors name communicator, operation and NCCL's own message") {
    Twin a(Dtype::f32, 4, rank);
    nccl_fail_next(nccl::Result::remote_error);
    CHECK_THAT(error_of([&] { world.all_reduce(exec, a.gpu); }),
               Contains("NCCL: all_reduce between the ranks of world: remote process exited or there was a "
                        "network error: injected by the test"));
    // in a group, whose other calls are dropped
    Twin in(Dtype::f32, size, rank), out(Dtype::f32, size, rank);
    nccl_fail_next(nccl::Result::remote_error);
    CHECK_THAT(error_of([&] { world.all_to_all(exec, out.gpu, in.gpu); }),
               Contains("NCCL: all_to_all between the ranks of world: remote process"));
    // an error of earlier work
    nccl_set_state(nccl::Result::remote_error);
    CHECK_THAT(error_of([&] { world.all_reduce(exec, a.gpu); }), Contains("network error: a rank is gone"));
    nccl_set_state(nccl::Result::success);
    world.all_reduce(a.host);
    world.all_reduce(exec, a.gpu);
    exec.queue->finish();
    CHECK(a.same());
    CHECK_THROWS_AS(world.all_reduce(exec, Tensor(a.gpu.view.data, Dtype::f16, {2})), LogicError);
}

TEST_CASE_METHOD(Fixture, "NCCL: the stand-in detects ranks that disagree, and operands that overlap") {
    Twin a(Dtype::f32, 8, rank), b(Dtype::f32, 8 * size, rank);
    world.all_reduce(exec, a.gpu.view.slice_rows(0, rank == 0 ? 3 : 4));
    CHECK_THROWS_WITH(exec.queue->finish(), Contains("this rank gave all_reduce 0 of "));
    exec.queue->finish();
    CHECK_THAT(
        error_of([&] { world.all_gather(exec, b.gpu, b.gpu.view.slice_rows((rank + 1) % size * 8, 8)); }),
        Contains("operands overlap"));
    const std::vector<RowRange> each(size_t(size), {0, 2});  // all arrive in the same place
    CHECK_THAT(error_of([&] { world.all_to_all(exec, b.gpu, each, a.gpu, each); }),
               Contains("messages of a group overlap"));
}

TEST_CASE("NCCL: communicators are destroyed, or aborted if an exception is being thrown") {
    CHECK(nccl_live() == 0);
    const int before = nccl_aborted();
    {
        const Fixture f;
        CHECK(nccl_live() == 2);  // including the one that the other is split from
    }
    CHECK(nccl_live() == 0);
    CHECK(nccl_aborted() == before);
    try {
        const Fixture f;
        throw SystemError("on its way");
    } catch (const SystemError&) {
    }
    CHECK(nccl_live() == 0);
    CHECK(nccl_aborted() == before + 2);
}

TEST_CASE("NCCL: communicators of weights and gradients have their own limit of blocks") {
    const Communicator world = Communicator::world("world");
    for (const bool splits : {true, false}) {
        // weights and gradients; losses and owners, and tensor parallelism or replicas
        const int half = world.size() / 2;
        for (const MeshShape& shape :
             {MeshShape{.dp_shard = 2, .tp = half}, {.dp_replicate = half, .dp_shard = 2}}) {
            Mesh mesh(world.split(0, "world"), shape);
            NcclWorld nccl(splits ? nccl_stand_in() : nccl_stand_in_without_split(), world, the_gpu());
            mesh.connect(nccl, {.state = 12, .others = 7});
            nccl.end_connecting();
            std::vector<int> expected = {7, 7, 12, 12};
            if (half > 1) expected.push_back(shape.tp > 1 ? 7 : 12);
            std::ranges::sort(expected);
            CHECK(nccl_max_ctas() == expected);
        }
        Mesh mesh(world.split(0, "world"), {.dp_shard = world.size()});
        NcclWorld nccl(splits ? nccl_stand_in() : nccl_stand_in_without_split(), world, the_gpu());
        mesh.connect(nccl, {.state = 12});
        nccl.end_connecting();
        CHECK(nccl_max_ctas() == std::vector<int>{0, 0, 12, 12});
    }
}

TEST_CASE("NCCL: many ranks meet in several places") {
    const Communicator world = Communicator::world("world");
    for (const int ranks_per_id : {1, 2, 3}) {
        Communicator all = world.split(0, "all");
        NcclWorld nccl(nccl_stand_in(), world, the_gpu(), nullptr, ranks_per_id);
        if (ranks_per_id < world.size())
            CHECK(nccl_ids_used() == (world.size() + ranks_per_id - 1) / ranks_per_id);
        all.connect(nccl);
        nccl.end_connecting();
        Exec exec(the_gpu());
        Twin a(Dtype::f32, 5, world.rank());
        all.all_reduce(a.host);
        all.all_reduce(exec, a.gpu);
        exec.queue->finish();
        CHECK(a.same());
    }
}

TEST_CASE("NCCL: an error at the end of the communicator of all ranks is that of all ranks") {
    const Communicator world = Communicator::world("world");
    NcclLibrary failing = nccl_stand_in();
    if (world.rank() == 1) failing.comm_finalize = [](nccl::Comm) { return nccl::Result::remote_error; };
    NcclWorld nccl(failing, world, the_gpu());
    CHECK_THROWS_WITH(
        nccl.end_connecting(),
        Contains("rank 1: NCCL: end between the ranks of world: remote process exited or there was a "
                 "network error"));
}

TEST_CASE("NCCL: after an error, an operation that other ranks never join does not block its queue") {
    const Communicator world = Communicator::world("world");
    Mesh mesh(world.split(0, "world"), {.dp_shard = world.size()});
    Communicator part = mesh[axis::dp_shard].split(0, "part");
    const Twin a(Dtype::f32, 4, world.rank());
    const int before = nccl_aborted();
    try {
        Exec exec(the_gpu());
        NcclWorld nccl(nccl_stand_in(), world, the_gpu());
        mesh.connect(nccl);
        mesh.connect(part);
        if (world.rank() == 0) part.all_reduce(exec, a.gpu);
        throw SystemError("on its way");
    } catch (const SystemError&) {
    }
    CHECK(nccl_live() == 0);
    CHECK(nccl_aborted() == before + 6);  // including the one that they are split from
    Exec exec(the_gpu());
    CHECK_THROWS_AS(part.all_reduce(exec, a.gpu), LogicError);
}

TEST_CASE("NCCL: a mesh connects the communicators that carry tensors, and communicators split from them") {
    const Communicator world = Communicator::world("world");
    for (const bool splits : {true, false}) {
        const MeshShape shape = {.dp_shard = 2, .tp = world.size() / 2};
        Mesh mesh(world.split(0, "world"), shape);
        Communicator part = mesh[axis::dp_shard].split(0, "part");
        const int before = nccl_splits();
        {
            NcclWorld nccl(splits ? nccl_stand_in() : nccl_stand_in_without_split(), world, the_gpu());
            mesh.connect(nccl);
            // weights, gradients, losses, owners; with tensor parallelism also its own
            const int made = world.size() == 2 ? 4 : 5;
            CHECK(carrying_communicators(shape) == made);
            CHECK(nccl_live() == made + splits);
            mesh.connect(part);
            CHECK(nccl_live() == made + 1 + splits);
            CHECK(nccl_splits() - before == (splits ? made + 1 : 0));
            // all are connected: the one of all ranks ends
            nccl.end_connecting();
            CHECK(nccl_live() == made + 1);
            CHECK_THAT(nccl.text(), Catch::StartsWith(fmt::format("{} communicators in ", made + 1)));
            CHECK(nccl.text().ends_with("ranks") == splits);
            CHECK_THROWS_AS(mesh.connect(part), LogicError);
            CHECK(nccl_live() == made + 1);

            // each has its own ranks, in their order
            Exec exec(the_gpu());
            for (const Communicator* ranks :
                 {&mesh[axis::dp_shard], &mesh[axis::tp], &mesh[loss_axes], &std::as_const(part)}) {
                Twin own(Dtype::f32, 3, world.rank()), all(Dtype::f32, 3 * ranks->size(), 0);
                ranks->all_gather(all.host, own.host);
                ranks->all_gather(exec, all.gpu, own.gpu);
                exec.queue->finish();
                CHECK(all.same());
            }
        }
        CHECK(nccl_live() == 0);
    }
    Mesh staged(world.split(0, "world"), {.dp_shard = world.size()});
    Communicator other = staged[axis::dp_shard].split(0, "part");
    staged.connect(other);
    CHECK(nccl_live() == 0);
}

TEST_CASE("NCCL: a communicator of some ranks, next to one of the others") {
    const Communicator world = Communicator::world("world");
    const bool is_last = world.rank() == world.size() - 1;
    Communicator part = world.split(is_last ? 1 : 0, "all but the last");
    Exec exec(the_gpu());
    NcclWorld nccl(nccl_stand_in(), world, the_gpu());
    part.connect(nccl);
    CHECK(nccl_live() == (part.size() == 1 ? 1 : 2));
    Twin a(Dtype::f32, 5, world.rank());
    part.all_reduce(a.host);
    part.all_reduce(exec, a.gpu);
    exec.queue->finish();
    CHECK(a.same());
}
