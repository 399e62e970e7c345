// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/error.hpp"
#include "coeus/comm/point_to_point.hpp"
#include "coeus/device/memory.hpp"
#include "support/catch.hpp"
#include "support/row_exchange.hpp"

#include <fmt/format.h>

#include <cmath>
#include <vector>

using namespace coeus;
using namespace coeus::test;

namespace {

struct SmallMessages {
    explicit SmallMessages(int64_t bytes) { Communicator::set_largest_message(bytes); }
    ~SmallMessages() { Communicator::set_largest_message(int64_t(1) << 30); }
    SmallMessages(const SmallMessages&) = delete;
    SmallMessages& operator=(const SmallMessages&) = delete;
};

// A value that is different for every element and rank, and whose sums need rounding.
float value(int rank, int64_t i) {
    return std::sin(float(i % 1009) + 1000.f * float(rank)) * std::ldexp(1.f, rank * 3);
}

}  // namespace

TEST_CASE("all_reduce sums in the order of the ranks") {
    const Communicator world = Communicator::world("world");
    for (int64_t n : {1, 2, 3, 5, 1000, 65536 * 4 + 3, 700001}) {
        OwnedTensor t(Dtype::f32, {n});
        for (int64_t i = 0; i < n; ++i) t.view.as<float>()[i] = value(world.rank(), i);
        world.all_reduce(t);
        int64_t wrong = 0;
        for (int64_t i = 0; i < n; ++i) {
            float sum = value(0, i);
            for (int rank = 1; rank < world.size(); ++rank) sum += value(rank, i);
            wrong += !(t.view.as<float>()[i] == sum);
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("bf16 is summed in float32 and rounded once") {
    const Communicator world = Communicator::world("world");
    OwnedTensor t(Dtype::bf16, {17});
    for (int64_t i = 0; i < 17; ++i) t.view.as<bf16>()[i] = bf16(value(world.rank(), i));
    world.all_reduce(t);
    for (int64_t i = 0; i < 17; ++i) {
        float sum = 0;
        for (int rank = 0; rank < world.size(); ++rank) sum += float(bf16(value(rank, i)));
        CHECK(t.view.as<bf16>()[i].bits == bf16(sum).bits);
    }
}

TEST_CASE("reduce_scatter and all_gather are the two halves of all_reduce") {
    const Communicator world = Communicator::world("world");
    for (int64_t each : {1, 7, 70001}) {
        const int64_t n = each * world.size();
        OwnedTensor whole(Dtype::f64, {n}), reduced(Dtype::f64, {n}), own(Dtype::f64, {each});
        for (int64_t i = 0; i < n; ++i)
            whole.view.as<double>()[i] = reduced.view.as<double>()[i] = double(value(world.rank(), i));
        world.reduce_scatter(own, whole);
        OwnedTensor gathered(Dtype::f64, {n});
        world.all_gather(gathered, own);
        world.all_reduce(reduced);
        int64_t wrong = 0;
        for (int64_t i = 0; i < n; ++i)
            wrong += !(gathered.view.as<double>()[i] == reduced.view.as<double>()[i]);
        CHECK(wrong == 0);
    }
}

TEST_CASE("all_gather puts each rank's part at its place") {
    const Communicator world = Communicator::world("world");
    const int size = world.size(), rank = world.rank();
    for (const int64_t each : {1, 256, 257, 300007})  // up to 1 KiB the data take another path
        for (const bool in_place : {false, true}) {
            OwnedTensor all(Dtype::f32, {size, each}), own(Dtype::f32, {each});
            const Tensor in = in_place ? all.view.slice_rows(rank, 1).reshape({each}) : own.view;
            for (int64_t i = 0; i < each; ++i) in.as<float>()[i] = value(rank, i);
            world.all_gather(all, in);
            int64_t wrong = 0;
            for (int peer = 0; peer < size; ++peer)
                for (int64_t i = 0; i < each; ++i)
                    wrong += !(all.view.as<float>()[peer * each + i] == value(peer, i));
            CHECK(wrong == 0);
        }
}

TEST_CASE("scalars, maximum, broadcast, send and receive") {
    const Communicator world = Communicator::world("world");
    const int size = world.size(), rank = world.rank();
    CHECK(world.all_reduce(int64_t(rank + 1)) == int64_t(size) * (size + 1) / 2);
    CHECK(world.all_reduce(double(rank), Reduce::max) == double(size - 1));
    CHECK(std::isnan(world.all_reduce(rank == 0 ? std::nan("") : 1.0)));

    OwnedTensor t(Dtype::i32, {3});
    t.view.as<int32_t>()[2] = rank;
    world.broadcast(t, size - 1);
    CHECK(t.view.as<int32_t>()[2] == size - 1);
}

TEST_CASE("all_to_all is a transposition") {
    const Communicator world = Communicator::world("world");
    const int size = world.size(), rank = world.rank();
    for (const int64_t each : {1, 7, 300007}) {  // the last is larger than what MPI buffers
        OwnedTensor in(Dtype::f32, {size, each}), out(Dtype::f32, {size, each});
        for (int64_t i = 0; i < size * each; ++i) in.view.as<float>()[i] = value(rank, i);
        world.all_to_all(out, in);
        int64_t wrong = 0;
        for (int peer = 0; peer < size; ++peer)
            for (int64_t i = 0; i < each; ++i)
                wrong += !(out.view.as<float>()[peer * each + i] == value(peer, rank * each + i));
        CHECK(wrong == 0);
    }
}

TEST_CASE("all_to_all of rows: any counts, in any places") {
    const Communicator world = Communicator::world("world");
    Exec exec;
    for (const Dtype dtype : exchanged_types)
        for (const int64_t scale : {1, 5}) CHECK(wrong_row_exchanges(world, exec, dtype, scale) == "");
    CHECK(wrong_row_exchanges(world, exec, Dtype::f32, 30011) == "");  // more than what MPI buffers
    CHECK(wrong_row_exchanges(alone(), exec, Dtype::f32) == "");
}

TEST_CASE("all_to_all of rows: in messages that end within rows") {
    const Communicator world = Communicator::world("world");
    const SmallMessages small(40);
    Exec exec;
    for (const Dtype dtype : exchanged_types) CHECK(wrong_row_exchanges(world, exec, dtype, 7) == "");
}

TEST_CASE("all_to_all of rows: as work of a stream") {
    const Communicator world = Communicator::world("world");
    Exec exec;
    for (const auto mode : {Stream::Mode::eager, Stream::Mode::threaded, Stream::Mode::deferred}) {
        Stream beside(mode, exec);
        CHECK(wrong_row_exchanges(world, exec, Dtype::f32, 3, &beside) == "");
    }
}

TEST_CASE("all_to_all of rows: the observer sees the larger side of the rank") {
    struct Seen : CommunicationObserver {
        std::string text;
        int64_t begin(const std::string& communicator, const char* operation, int64_t bytes,
                      const std::source_location&, const Queue*) override {
            text += fmt::format("{}: {} {}; ", communicator, operation, bytes);
            return 0;
        }
        void end(int64_t) override {}
    } seen;
    Communicator world = Communicator::world("world");
    world.observe(&seen);
    const size_t size = size_t(world.size());
    const bool is_first = world.rank() == 0;
    // all ranks send two rows to rank 0
    const OwnedTensor in(Dtype::f32, {2, 3}), out(Dtype::f32, {2 * world.size(), 3});
    std::vector<RowRange> to(size), from(size);
    from[0] = {0, 2};
    for (size_t peer = 0; is_first && peer < size; ++peer) to[peer] = {2 * int64_t(peer), 2};
    world.all_to_all(out, to, in, from);
    const std::string expected = fmt::format("world: all_to_all {}; ", 24 * (is_first ? size : 1));
    CHECK(seen.text == (size == 1 ? "" : expected));
}

TEST_CASE("all_to_all of rows: arguments are checked; planned ranks exchange nothing") {
    const Communicator world = Communicator::world("world");
    const size_t size = size_t(world.size()), rank = size_t(world.rank());
    const OwnedTensor in(Dtype::f32, {4, 3}), out(Dtype::f32, {4, 3}), narrow(Dtype::f32, {4, 2}),
        whole(Dtype::i32, {4, 3});
    const std::vector<RowRange> none(size), fewer(size - 1);
    std::vector<RowRange> outside(size), one(size);
    outside[size - 1] = {2, 3};
    one[rank] = {0, 1};
    const auto call = [&](Tensor received, std::span<const RowRange> to, Tensor sent,
                          std::span<const RowRange> from) { world.all_to_all(received, to, sent, from); };
    CHECK_THROWS_AS(call(narrow, none, in, none), LogicError);
    CHECK_THROWS_AS(call(whole, none, in, none), LogicError);
    CHECK_THROWS_AS(call(narrow, none, in.view.slice_cols(0, 2), none), LogicError);
    CHECK_THROWS_AS(call(out, fewer, in, none), LogicError);
    CHECK_THROWS_AS(call(out, none, in, fewer), LogicError);
    CHECK_THROWS_AS(call(out, outside, in, none), LogicError);
    CHECK_THROWS_AS(call(out, none, in, outside), LogicError);
    CHECK_THROWS_AS(call(out, one, in, none), LogicError);
    call(out, none, in, none);

    Exec exec;
    const Communicator planned = Communicator::planned(1, 8, "planned");
    planned.all_to_all(out, outside, in, {});
    planned.all_to_all(exec, out, outside, in, {});
}

TEST_CASE("send_receive passes rows to any distance, with lengths that differ") {
    const Communicator world = Communicator::world("world");
    const int size = world.size(), rank = world.rank();
    for (int step = 0; step < size; ++step)
        for (const int64_t count : {1, 300007}) {
            const int to = (rank + step) % size, from = (rank + size - step) % size;
            OwnedTensor here(Dtype::f32, {count + rank}), coming(Dtype::f32, {count + from});
            for (int64_t i = 0; i < count + rank; ++i) here.view.as<float>()[i] = value(rank, i);
            world.send_receive(here, to, coming, from);
            int64_t wrong = 0;
            for (int64_t i = 0; i < count + from; ++i)
                wrong += !(coming.view.as<float>()[i] == value(from, i));
            CHECK(wrong == 0);
        }
}

TEST_CASE("messages around a ring do not wait for each other's buffers") {
    const Communicator world = Communicator::world("world");
    const int size = world.size(), rank = world.rank(), next = (rank + 1) % size,
              previous = (rank + size - 1) % size;
    for (const int64_t count : {1, 300007}) {
        OwnedTensor here(Dtype::f32, {count}), coming(Dtype::f32, {count});
        for (int64_t i = 0; i < count; ++i) here.view.as<float>()[i] = value(rank, i);
        PointToPoint messages(world, 2, Sends::synchronous);
        messages.receive(1, coming, previous, 0);
        messages.send(0, here, next, 0);
        CHECK_THROWS_AS(messages.send(0, here, next, 0), LogicError);
        CHECK(world.all_reduce(int64_t(1)) == size);  // other operations may run in the meantime
        messages.wait(0);
        messages.wait(1);
        messages.wait(1);  // nothing is pending
        int64_t wrong = 0;
        for (int64_t i = 0; i < count; ++i) wrong += !(coming.view.as<float>()[i] == value(previous, i));
        CHECK(wrong == 0);
        {  // the destructor waits
            PointToPoint back(world, 2, Sends::standard);
            back.receive(1, here, next, 5);
            back.send(0, coming, previous, 5);
        }
        CHECK(here.view.as<float>()[count - 1] == value(rank, count - 1));
    }
}

TEST_CASE("tensors larger than one message arrive whole") {
    const Communicator world = Communicator::world("world");
    const SmallMessages small(8192);
    const int ranks = world.size(), rank = world.rank();
    const int64_t n = 7001;  // leaves a remainder after whole pieces
    OwnedTensor own(Dtype::f32, {n}), all(Dtype::f32, {n * ranks}), exchanged(Dtype::f32, {n * ranks}),
        received(Dtype::f32, {n}), counts(Dtype::i64, {n});
    for (int64_t i = 0; i < n; ++i) own.view.as<float>()[i] = value(rank, i);
    world.all_gather(all.view, own.view);
    int64_t wrong = 0;
    for (int64_t i = 0; i < n * ranks; ++i) wrong += !(all.view.as<float>()[i] == value(int(i / n), i % n));
    CHECK(wrong == 0);
    // the elements for receiver r are the r-th part
    for (int64_t i = 0; i < n * ranks; ++i) all.view.as<float>()[i] = value(rank, 3 * i);
    world.all_to_all(exchanged.view, all.view);
    for (int64_t i = 0; i < n * ranks; ++i)
        wrong += !(exchanged.view.as<float>()[i] == value(int(i / n), 3 * (rank * n + i % n)));
    CHECK(wrong == 0);
    world.send_receive(own.view, (rank + 1) % ranks, received.view, (rank + ranks - 1) % ranks);
    for (int64_t i = 0; i < n; ++i)
        wrong += !(received.view.as<float>()[i] == value((rank + ranks - 1) % ranks, i));
    CHECK(wrong == 0);
    for (int64_t i = 0; i < n; ++i) counts.view.as<int64_t>()[i] = (rank + i) % ranks * 1000 + i;
    world.all_reduce(counts.view, Reduce::max);
    for (int64_t i = 0; i < n; ++i) wrong += counts.view.as<int64_t>()[i] != (ranks - 1) * 1000 + i;
    CHECK(wrong == 0);
}
