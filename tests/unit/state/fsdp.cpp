// SPDX-License-Identifier: Apache-2.0
// Where gathered units are stored, which may be in use together, and when each is gathered and reduced. The
// test uses one rank of several that are only planned: their collectives do nothing. For the results on real
// ranks see tests/mpi/state/fsdp.cpp.
#include "coeus/state/fsdp.hpp"

#include "counted.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

struct Options {
    GatherOptions gather = {};
    Stream::Mode streams = Stream::Mode::eager;
    StateTypes types = {Dtype::f64, Dtype::f64};
    int ranks = 2, rank = 0;
    int64_t cols = 8;  // a row fills one alignment
    bool tied = false;
    int uses = 1;
    bool sums_products = false;
};
constexpr GatherOptions neighbours = {}, all = {Keep::all, Keep::all};

// Units of one matrix each, with these numbers of rows.
struct Rig {
    CountedHost host;
    Exec exec;
    Kernels kernels = counting_kernels();
    Communicator ranks, replicas = Communicator::self();
    Parameters parameters;
    std::unique_ptr<Gathered> gathered;

    Rig(const std::vector<int64_t>& rows, const Options& options)
        : ranks(Communicator::planned(options.rank, options.ranks, "ranks")),
          parameters(options.types, ShardPlace{.fsdp = options.ranks, .fsdp_rank = options.rank}) {
        calls = {};
        exec.device = &host;
        for (const int64_t r : rows) {
            const bool first = parameters.units().empty();
            parameters.begin_unit(first && options.tied ? 2 : options.uses);
            parameters.add({.name = fmt::format("m{}", parameters.units().size()),
                            .shape = {r, options.cols},
                            .init = Init::ones(),
                            .sums_products = options.sums_products});
        }
        if (options.tied && rows.size() > 2) parameters.use_after(0, rows.size() - 1);
        gathered = std::make_unique<Gathered>(parameters, options.gather);
        parameters.allocate(true);
        gathered->allocate({{ranks, ranks, replicas}}, options.streams, exec, kernels);
    }
    Storage& operator[](size_t unit) { return parameters.storages()[unit]; }
    Gathered::WeightLease weights(size_t unit) { return {gathered.get(), unit}; }
    Gathered::GradientLease gradients(size_t unit) { return {gathered.get(), unit}; }
    void use_gradients(size_t unit) { gradients(unit).release(); }
};

bool overlap(const Tensor& a, const Tensor& b) {
    const auto *first = static_cast<std::byte*>(a.data), *second = static_cast<std::byte*>(b.data);
    return first < second + b.bytes() && second < first + a.bytes();
}

}  // namespace

TEST_CASE("gathered: there is memory for two neighbours at a time, or for all units, and not more") {
    struct Case {
        std::vector<int64_t> rows;
        bool tied;
        int64_t of_neighbours, of_all;  // rows of memory
    };
    for (const Case& c : {
             Case{{4}, false, 4, 4}, Case{{4, 2, 6, 2}, false, 8, 14}, Case{{2, 8, 2, 4, 6}, false, 10, 22},
             Case{{3, 1}, false, 6, 6},            // each is padded to an even number
             Case{{4, 2}, true, 6, 6},             // a table and the only block
             Case{{8, 2, 4, 6}, true, 14, 20},     // the table next to the last block
             Case{{8, 2, 4}, true, 14, 14},        // three units, each next to both others
             Case{{4, 4, 4, 4, 4}, true, 12, 20},  // three in a line
             Case{{2, 2, 4, 6, 4}, true, 10, 18}   // the three smallest, if two larger ones take turns
         }) {
        CAPTURE(c.rows, c.tied);
        Options options{.tied = c.tied};
        {
            const Rig rig(c.rows, options);
            CHECK(rig.gathered->bytes().weights == c.of_neighbours * 64);
            CHECK(rig.gathered->bytes().gradients == c.of_neighbours * 64);
            CHECK(rig.host.taken ==
                  std::map<std::string, int64_t>{{"gathered weights", c.of_neighbours * 64},
                                                 {"unreduced gradients", c.of_neighbours * 64}});
        }
        options.gather.weights = Keep::all;
        options.types = {Dtype::f32, Dtype::bf16};
        options.cols = 32;
        {
            const Rig rig(c.rows, options);
            CHECK(rig.gathered->bytes().weights == c.of_all * 64);
            CHECK(rig.gathered->bytes().gradients == c.of_neighbours * 128);
            CHECK(rig.host.taken.at("gathered weights") == c.of_all * 64);
        }
    }
    // rows narrower than a memory line: 3 and 4 elements, in one line each
    CHECK(Rig({3, 4}, {.cols = 1}).gathered->bytes().weights == 128);
    CHECK(Rig({3, 4}, {.gather = all, .cols = 1}).gathered->bytes().weights == 128);
}

TEST_CASE("gathered: units that are used together do not overlap, and have their own memory lines") {
    for (const bool tied : {false, true})
        for (const auto& rows : std::vector<std::vector<int64_t>>{{4, 2, 6, 2},
                                                                  {2, 8, 2, 4, 6},
                                                                  {8, 2, 4},
                                                                  {2, 8, 4},
                                                                  {2, 2, 8},
                                                                  {2, 2, 4, 6, 4},
                                                                  {9, 1, 3, 5, 7, 1, 2},
                                                                  {3, 5}})
            for (const GatherOptions& keep : {neighbours, all}) {
                CAPTURE(tied, rows, int(keep.weights));
                Rig rig(rows, {.gather = keep, .cols = 3, .tied = tied});
                const size_t units = rows.size();
                for (size_t a = 0; a < units; ++a)
                    for (size_t b = 0; b < units; ++b) {
                        const bool together =
                            b == a + 1 ||
                            (tied && ((a == 0 && b == units - 1) || (b == 0 && a == units - 1)));
                        if (a == b || (keep.weights == Keep::neighbours && !together)) continue;
                        CAPTURE(a, b);
                        CHECK_FALSE(overlap(rig[a].w, rig[b].w));
                        CHECK_FALSE(overlap(rig[a].g, rig[b].g));
                        CHECK_NOTHROW([&] {
                            const auto first = rig.weights(a), second = rig.weights(b);
                            const auto third = rig.gradients(a), fourth = rig.gradients(b);
                        }());
                    }
                for (const Storage& s : rig.parameters.storages()) {
                    CHECK(reinterpret_cast<uintptr_t>(s.w.data) % alignment == 0);
                    CHECK(reinterpret_cast<uintptr_t>(s.g.data) % alignment == 0);
                    CHECK(s.w.shape == s.shape());
                    CHECK(s.g.shape == s.shape());
                }
            }
}

TEST_CASE("gathered: a unit is gathered once, as long as its place is not reused") {
    Rig rig({2, 2, 2, 2}, {});
    CHECK_FALSE(rig.gathered->is_in_use(1));
    {
        std::optional<Gathered::WeightLease> first(std::in_place, rig.gathered.get(), size_t(1));
        CHECK(rig.gathered->is_in_use(1));
        CHECK_FALSE(rig.gathered->is_in_use(3));  // in the same place
        CHECK(calls.casts == 1);
        {
            const auto second = rig.weights(1);
            first.reset();  // the other lease still holds it
            CHECK(rig.gathered->is_in_use(1));
        }
        CHECK_FALSE(rig.gathered->is_in_use(1));
    }
    {
        const auto again = rig.weights(1);  // it is still there
        const auto neighbour = rig.weights(2);
    }
    CHECK(calls.casts == 2);
    { const auto other = rig.weights(3); }
    CHECK(calls.casts == 3);
    { const auto neighbour = rig.weights(2); }
    CHECK(calls.casts == 3);
    { const auto again = rig.weights(1); }
    CHECK(calls.casts == 4);

    Rig with_places({2, 2, 2, 2}, {.gather = all});
    for (int pass = 0; pass < 3; ++pass)
        for (const size_t unit : std::array<size_t, 7>{0, 1, 2, 3, 3, 1, 0})
            const auto lease = with_places.weights(unit);
    CHECK(calls.casts == 4);
}

TEST_CASE("gathered: a unit that was prefetched is not gathered again, and does not replace one in use") {
    for (const auto streams : {Stream::Mode::eager, Stream::Mode::deferred}) {
        CAPTURE(int(streams));
        Rig rig({2, 2, 2, 2}, {.streams = streams});
        for (size_t u = 0; u < 4; ++u) fill(rig[u].master, 10 * double(u + 1));
        rig.gathered->prefetch(0);
        rig.gathered->prefetch(0);
        CHECK(calls.casts == (streams == Stream::Mode::eager ? 1 : 0));  // it waits for nothing
        CHECK_FALSE(rig.gathered->is_in_use(0));
        {
            const auto first = rig.weights(0);
            CHECK(calls.casts == 1);
            CHECK(element(rig[0].w, 7) == 17);
            rig.gathered->prefetch(1);
            rig.gathered->prefetch(2);  // no room
            const auto second = rig.weights(1);
            CHECK(calls.casts == 2);
            CHECK(element(rig[1].w, 7) == 27);
            CHECK(element(rig[0].w, 7) == 17);
            CHECK_THROWS_AS(rig.weights(2), LogicError);
            CHECK_THROWS_WITH(rig.weights(3), Contains("there is no room for the weights of a unit"));
            CHECK_FALSE(rig.gathered->is_in_use(2));
        }
        rig.gathered->prefetch(2);  // in the place of a released one
        {
            const auto third = rig.weights(2);
            CHECK(calls.casts == 3);
            CHECK(element(rig[2].w, 7) == 37);
        }
        // a prefetched unit that was not used can be replaced, too
        rig.gathered->prefetch(3);
        rig.gathered->prefetch(1);
        const auto second = rig.weights(1);
        CHECK(calls.casts == 5);
        CHECK(element(rig[1].w, 7) == 27);
    }
}

TEST_CASE("gathered: two units can be gathered ahead, in the memory of three, gradients in that of two") {
    const GatherOptions ahead = {.prefetch = 2};
    Rig rig({2, 2, 2, 2, 2}, {.gather = ahead});
    CHECK(rig.gathered->bytes().weights == 3 * 2 * 64);
    CHECK(rig.gathered->bytes().gradients == 2 * 2 * 64);
    CHECK(rig.gathered->prefetched_units() == 2);
    for (size_t u = 0; u < 5; ++u) fill(rig[u].master, 10 * double(u + 1));
    for (size_t u = 0; u < 5; ++u) {
        const auto lease = rig.weights(u);
        for (size_t next = u + 1; next < std::min<size_t>(5, u + 3); ++next) rig.gathered->prefetch(next);
        CHECK(calls.casts == int(std::min<size_t>(5, u + 3)));
        CHECK(element(rig[u].w, 7) == 10 * double(u + 1) + 7);
    }
    CHECK(calls.casts == 5);
    // units of other sizes, a table that is used at both ends, few units
    for (const bool tied : {false, true})
        for (const auto& rows : std::vector<std::vector<int64_t>>{
                 {4, 2, 6, 2}, {2, 8, 2, 4, 6}, {8, 2, 4}, {3, 5}, {9, 1, 3, 5, 7, 1, 2}}) {
            CAPTURE(tied, rows);
            Rig other(rows, {.gather = ahead, .cols = 3, .tied = tied});
            for (size_t u = 0; u + 2 < rows.size(); ++u) {
                CHECK_FALSE(overlap(other[u].w, other[u + 1].w));
                CHECK_FALSE(overlap(other[u].w, other[u + 2].w));
                CHECK_FALSE(overlap(other[u].g, other[u + 1].g));
            }
            if (!tied || rows.size() < 4) continue;
            CHECK_FALSE(overlap(other[0].w, other[rows.size() - 2].w));
        }
}

TEST_CASE("gathered: the unit of the forward that follows a backward is gathered if one follows") {
    Rig rig({2, 2, 2}, {});
    rig.gathered->prefetch_next();
    CHECK(calls.casts == 0);
    rig.gathered->expect_next(0);
    {
        const auto lease = rig.weights(1);
        rig.gathered->prefetch_next();
        rig.gathered->prefetch_next();
        CHECK(calls.casts == 2);
    }
    { const auto lease = rig.weights(0); }
    CHECK(calls.casts == 2);
    rig.gathered->expect_next({});
    rig.gathered->forget_weights();
    rig.gathered->prefetch_next();
    CHECK(calls.casts == 2);
}

TEST_CASE("gathered: weights are gathered again after an update, which waits for those that use them") {
    for (const GatherOptions& keep : {neighbours, all})
        for (const auto streams : {Stream::Mode::eager, Stream::Mode::deferred}) {
            Rig rig({2, 2}, {.gather = keep, .streams = streams});
            fill(rig[0].master, 10);
            {
                const auto lease = rig.weights(0);
                CHECK(element(rig[0].w, 0) == 10);
                CHECK_THROWS_WITH(rig.gathered->forget_weights(),
                                  Contains("weights change while they are in use"));
            }
            rig.gathered->prefetch(1);
            rig.gathered->forget_weights();
            fill(rig[0].master, 50);
            fill(rig[1].master, 70);
            const auto first = rig.weights(0), second = rig.weights(1);
            CHECK(element(rig[0].w, 0) == 50);
            CHECK(element(rig[1].w, 0) == 70);
        }
}

TEST_CASE("gathered: a rank's own rows are at their places") {
    for (const int64_t rows : {7, 5, 2, 1})
        for (int rank = 0; rank < 3; ++rank) {
            CAPTURE(rows, rank);
            Rig rig({rows, 4}, {.ranks = 3, .rank = rank, .cols = 2});
            const Storage& s = rig[0];
            fill(s.master, 100);
            const auto own = size_t(2 * std::min<int64_t>(rows, rank * ((rows + 2) / 3))),
                       count = size_t(s.master.count());
            CHECK(s.runs().size() == (count > 0 ? 1 : 0));
            if (count > 0) CHECK(size_t(2 * s.runs()[0].first_row) == own);
            {
                const auto lease = rig.weights(0);
                Values expected(size_t(2 * rows));  // the rows of other ranks are not received
                for (size_t i = 0; i < count; ++i) expected[own + i] = 100 + double(i);
                CHECK(values(s.w) == expected);
            }
            fill(s.gradient, 1000);
            {
                auto lease = rig.gradients(0);
                fill(s.g, 0);
                lease.release();
            }
            Values expected = counted(1000, count);
            for (size_t i = 0; i < count; ++i) expected[i] += double(own + i);
            CHECK(values(s.gradient) == expected);
        }
}

TEST_CASE("gathered: weights are taken from the master weights, or from their copy in the compute type") {
    for (const bool offload : {false, true}) {
        Rig rig({3}, {.types = {Dtype::f32, Dtype::bf16, offload}});
        fill(rig[0].master, 1 + 1.0 / 1024);
        rig.parameters.refresh_compute(rig.exec, rig.kernels);
        if (offload) fill(rig[0].master, 500);  // moved to the host
        const auto lease = rig.weights(0);
        for (int64_t i = 0; i < 8; ++i) CHECK(element(rig[0].w, i) == double(i + 1));
    }
}

TEST_CASE("gathered: a gradient is zero when its lease begins, and is added to the owned rows at its end") {
    for (const GatherOptions& keep : {neighbours, all})
        for (const auto streams : {Stream::Mode::eager, Stream::Mode::threaded, Stream::Mode::deferred}) {
            const bool stays = keep.gradients == Keep::all;
            CAPTURE(stays, int(streams));
            Rig rig({2, 2, 2}, {.gather = keep, .streams = streams});
            fill(rig[0].gradient, 1000);
            fill(rig[0].g, -5);
            {
                auto lease = rig.gradients(0);
                CHECK(values(rig[0].g) == Values(16, 0));
                fill(rig[0].g, 1);
                {
                    auto nested = rig.gradients(0);
                    CHECK(values(rig[0].g) == counted(1, 16));
                    nested.release();
                }
                CHECK(values(rig[0].g) == counted(1, 16));
                CHECK(values(rig[0].gradient) == counted(1000, 8));
                lease.release();
            }
            if (streams == Stream::Mode::deferred || stays) CHECK(calls.adds == 0);
            if (!stays) {
                auto taken = rig.gradients(2);  // uses its place
                CHECK(calls.adds == 1);         // the sum was added before it could be cleared
                fill(rig[2].g, 7);
                taken.release();
            }
            {
                auto again = rig.gradients(0);
                CHECK(values(rig[0].g) == (stays ? counted(1, 16) : Values(16, 0)));
                set_element(rig[0].g, 0, stays ? 301 : 300);
                again.release();
            }
            rig.gathered->finish_gradients();
            Values expected = counted(1001, 8);
            for (size_t i = 0; i < 8; ++i) expected[i] += double(i) + (i == 0 ? 300 : 0);
            CHECK(values(rig[0].gradient) == expected);
            CHECK(values(rig[1].gradient) == Values(8, 0));
            CHECK(values(rig[2].gradient) == (stays ? Values(8, 0) : counted(7, 8)));
            CHECK(calls.zeros == (stays ? 1 : 3));
            CHECK(calls.adds == (stays ? 1 : 3));
            // the gradient of the next step begins with zero, like that of the first
            const auto next = rig.gradients(0);
            CHECK(values(rig[0].g) == Values(16, 0));
        }
}

TEST_CASE("gathered: gradients that sum products are not zeroed, unless no product came") {
    for (const GatherOptions& keep : {neighbours, all}) {
        const bool stays = keep.gradients == Keep::all;
        CAPTURE(stays);
        Rig rig({2, 2}, {.gather = keep, .sums_products = true});
        for (const bool first : {true, false}) {
            fill(rig[0].g, 5);
            auto lease = rig.gradients(0);
            CHECK(values(rig[0].g) == counted(5, 16));
            CHECK(rig[0].begin_product(0, 2) == (first || !stays));
            CHECK_FALSE(rig[0].begin_product(0, 2));
            lease.release();
        }
        CHECK(calls.zeros == 0);
        fill(rig[1].g, 9);
        rig.use_gradients(1);
        rig.gathered->finish_gradients();
        CHECK(calls.zeros == 1);
        CHECK(values(rig[1].gradient) == Values(8, 0));
        Values expected = counted(5, 8);
        if (!stays)
            for (double& value : expected) value *= 2;
        CHECK(values(rig[0].gradient) == expected);
    }
}

TEST_CASE("gathered: gradients of units that share a place cannot be held at the same time") {
    Rig rig({2, 2, 2}, {});
    const auto held = rig.gradients(0), neighbour = rig.gradients(1);
    fill(rig[0].g, 1);
    CHECK_THROWS_AS(rig.gradients(2), LogicError);
    CHECK_THROWS_WITH(rig.gradients(2), Contains("a unit would be gathered over one that is in use"));
    CHECK(values(rig[0].g) == counted(1, 16));
}

TEST_CASE("gathered: a gradient that stays is reduced after the last use of the step") {
    Rig rig({2, 2, 2}, {.gather = all, .uses = 2});
    const auto reduced = [&](size_t unit) { return element(rig[unit].gradient, 0) != 0; };
    for (size_t unit = 0; unit < 3; ++unit) {
        auto lease = rig.gradients(unit);
        fill(rig[unit].g, 1);
        lease.release();
    }
    CHECK(calls.adds == 0);
    rig.gathered->expect_last_uses(true);
    rig.use_gradients(0);
    CHECK_FALSE(reduced(0));
    rig.use_gradients(0);
    CHECK(reduced(0));
    rig.use_gradients(1);
    rig.gathered->expect_last_uses(false);
    rig.gathered->end_use(1);  // not one of the last
    CHECK_FALSE(reduced(1));
    rig.gathered->expect_last_uses(true);
    rig.gathered->end_use(1);
    CHECK(reduced(1));
    CHECK_FALSE(reduced(2));
    CHECK(calls.adds == 2);
    rig.gathered->finish_gradients();
    CHECK(reduced(2));
    CHECK(calls.adds == 3);

    // the next step counts from the beginning; its first micro-batches do not count
    rig.use_gradients(0);
    rig.use_gradients(0);
    CHECK(calls.adds == 3);
    rig.gathered->expect_last_uses(true);
    rig.use_gradients(0);
    CHECK(calls.adds == 3);
    rig.use_gradients(0);
    CHECK(calls.adds == 4);
    rig.gathered->finish_gradients();
    CHECK(calls.adds == 4);  // the other units were not used
}

TEST_CASE("gathered: a lease that ends by an exception reduces nothing") {
    for (const GatherOptions& keep : {neighbours, all}) {
        Rig rig({2, 2}, {.gather = keep});
        rig.gathered->expect_last_uses(true);
        CHECK_THROWS_WITH(
            [&] {
                const auto weights = rig.weights(0);
                const auto lease = rig.gradients(0);
                throw std::runtime_error("in a layer");
            }(),
            "in a layer");
        CHECK(calls.adds == 0);
        CHECK_FALSE(rig.gathered->is_in_use(0));
        CHECK_THROWS_WITH(rig.gathered->finish_gradients(), Contains("ended without a reduction"));
    }
}

TEST_CASE("gathered: a lease is released once, and a step cannot end after one that was not released") {
    for (const int ranks : {1, 2}) {
        Rig rig({2, 2}, {.ranks = ranks});
        rig.gathered->expect_last_uses(true);
        {
            auto lease = rig.gradients(0);
            lease.release();
            lease.release();
        }
        CHECK_NOTHROW(rig.gathered->finish_gradients());
        { const auto forgotten = rig.gradients(1); }
        CHECK_THROWS_WITH(rig.gathered->finish_gradients(), Contains("ended without a reduction"));
    }
}

TEST_CASE("gathered: a failed reduction throws at the point that waits for it") {
    for (const auto streams : {Stream::Mode::eager, Stream::Mode::threaded, Stream::Mode::deferred}) {
        CAPTURE(int(streams));
        Rig rig({2, 2}, {.streams = streams});
        calls.adding_fails = true;
        if (streams == Stream::Mode::eager)
            CHECK_THROWS_WITH(rig.use_gradients(0), Contains("the link is down"));
        else
            CHECK_NOTHROW(rig.use_gradients(0));
        if (streams != Stream::Mode::eager)
            CHECK_THROWS_WITH(rig.gathered->finish_gradients(), Contains("the link is down"));
    }
}

TEST_CASE("gathered: at the end of a step, all work of the streams has been waited for") {
    Rig rig({2, 2}, {.streams = Stream::Mode::deferred});
    rig.gathered->prefetch(0);
    rig.use_gradients(1);
    CHECK(calls.casts + calls.adds == 0);
    rig.gathered->finish_gradients();
    CHECK(calls.casts == 1);
    CHECK(calls.adds == 1);
}

TEST_CASE("gathered: work that nothing waited for ends before its memory is freed") {
    for (const auto streams : {Stream::Mode::threaded, Stream::Mode::deferred}) {
        Rig rig({2, 2}, {.streams = streams});
        rig.gathered->prefetch(0);
        rig.use_gradients(1);
        rig.gathered.reset();
        CHECK(calls.casts == 1);
        CHECK(calls.adds == 1);
    }
}

TEST_CASE("gathered: the computation's observer sees the exchanges that it may wait for") {
    struct Waits : KernelObserver {
        std::string text;
        int open = 0;
        void begin(const char*, double, double) override { ++open; }
        void begin_exchange(Exchange exchange, double bytes) override {
            text += fmt::format("{} {}, ", name_of(exchange), int64_t(bytes));
            ++open;
        }
        void end() override { --open; }
    } waits;
    Rig rig({2, 4}, {});
    const Observation observation = rig.exec.observers.add(waits);
    {
        const auto lease = rig.weights(1);
        rig.gathered->prefetch(0);
    }
    CHECK(waits.text == "gather_weights 256, ");
    waits.text.clear();
    rig.use_gradients(0);
    // waits for its place, then the reduction of the eager stream
    CHECK(waits.text == "reduce_gradients 0, reduce_gradients 0, ");
    CHECK(waits.open == 0);
}

TEST_CASE("gathered: a single rank has nothing to gather") {
    Rig rig({2, 3}, {.ranks = 1});
    CHECK(rig.gathered->bytes().weights == 0);
    CHECK(rig.gathered->bytes().gradients == 0);
    CHECK(rig.host.taken.empty());
    CHECK(rig[1].w.data == rig[1].master.data);
    CHECK(rig[1].g.data == rig[1].gradient.data);
    fill(rig[1].g, 5);
    CHECK(rig.gathered->is_in_use(0));  // its weights are always there
    {
        const auto weights = rig.weights(0), others = rig.weights(1);
        auto lease = rig.gradients(1);
        rig.gathered->prefetch(0);
        CHECK(values(rig[1].g) == counted(5, 24));
        rig.gathered->forget_weights();
        lease.release();
    }
    rig.gathered->expect_last_uses(true);
    rig.use_gradients(1);
    rig.gathered->finish_gradients();
    CHECK(values(rig[1].gradient) == counted(5, 24));
    CHECK(calls.casts + calls.adds + calls.zeros == 0);

    const Gathered::WeightLease weights(nullptr, 3);  // of a planning run
    Gathered::GradientLease gradients(nullptr, 3);
    CHECK_NOTHROW(gradients.release());
}

TEST_CASE("gathered: the communicators must match the shards") {
    Rig rig({2, 3}, {});
    const Communicator three = Communicator::planned(0, 3, "three");
    Gathered other(rig.parameters, {});
    const auto allocate = [&](const Communicator& gather, const Communicator& reduce) {
        other.allocate({{gather, reduce, alone()}}, Stream::Mode::eager, rig.exec, rig.kernels);
    };
    CHECK_THROWS_AS(allocate(three, three), LogicError);
    CHECK_THROWS_WITH(allocate(rig.ranks, three), Contains("not those of their shards"));
    CHECK_THROWS_WITH(allocate(alone(), rig.ranks), Contains("not those of their shards"));
    CHECK_NOTHROW(allocate(rig.ranks, rig.ranks));
}
