// SPDX-License-Identifier: Apache-2.0
// Gathered units whose storages are divided over different ranks.
#include "coeus/state/fsdp.hpp"
#include "counted.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"

#include <memory>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

// Three units. The first has one storage that is divided over two ranks and two that are not, one of them
// frozen. The second has only storages that are not divided, the third only divided ones.
struct Mixed {
    CountedHost host;
    Exec exec;
    Kernels kernels = counting_kernels();
    Communicator ranks = Communicator::planned(1, 2, "ranks"), self = Communicator::self();
    Parameters parameters;
    size_t own;
    std::unique_ptr<Gathered> gathered;

    explicit Mixed(const StateTypes& types)
        : parameters(types, ShardPlace{.fsdp = 2, .fsdp_rank = 1}), own(parameters.add_sharding({})) {
        calls = {};
        exec.device = &host;
        const auto add = [&](size_t sharding, bool trainable = true) {
            parameters.add({.name = fmt::format("m{}", parameters.storages().size()),
                            .shape = {4, 8},
                            .init = Init::ones(),
                            .shard = {.sharding = sharding},
                            .trainable = trainable});
        };
        parameters.begin_unit();
        add(own);
        add(dense_sharding);
        add(own, false);
        parameters.begin_unit();
        add(own);
        parameters.begin_unit();
        add(dense_sharding);
        gathered = std::make_unique<Gathered>(parameters, GatherOptions{});
    }
    void allocate() {
        parameters.allocate(true, host);
        gathered->allocate({{ranks, ranks, self}, {self, self, self}}, Stream::Mode::eager, exec, kernels);
    }
    Storage& operator[](size_t storage) { return parameters.storages()[storage]; }
};

}  // namespace

TEST_CASE("gathered: a storage that is not divided is used in place, next to gathered ones") {
    Mixed mixed({Dtype::f64, Dtype::f64});
    // a unit without gathered storages is between the two others
    CHECK(mixed.gathered->bytes().weights == 256);
    mixed.allocate();
    CHECK(mixed[0].w.data == mixed[0].master.data);
    CHECK(mixed[0].g.data == mixed[0].gradient.data);
    CHECK(mixed[2].w.data == mixed[2].master.data);
    CHECK(mixed[1].w.data != mixed[1].master.data);
    CHECK(mixed[0].master.shape == Shape{4, 8});
    CHECK(mixed[1].master.shape == Shape{2, 8});
    CHECK(mixed.gathered->is_in_use(1));  // always there
    CHECK_FALSE(mixed.gathered->is_in_use(0));
    fill(mixed[0].master, 100);
    fill(mixed[1].master, 200);
    fill(mixed[0].gradient, 1000);
    {
        const Gathered::WeightLease first(mixed.gathered.get(), 0), second(mixed.gathered.get(), 1);
        CHECK(calls.casts == 1);  // of the gathered storage
        CHECK(values(mixed[0].w) == counted(100, 32));
        CHECK(element(mixed[1].w, 16) == 200);
        Gathered::GradientLease gradients(mixed.gathered.get(), 0);
        CHECK(calls.zeros == 1);
        CHECK(values(mixed[0].g) == counted(1000, 32));  // gradients are accumulated in the owned memory
        CHECK(values(mixed[1].g) == Values(32));
        fill(mixed[1].g, 0);
        gradients.release();
    }
    CHECK(calls.adds == 1);
    CHECK(values(mixed[0].gradient) == counted(1000, 32));
    CHECK(values(mixed[1].gradient) == counted(16, 16));
    CHECK_NOTHROW(mixed.gathered->forget_weights());
}

TEST_CASE("gathered: only storages that are not gathered keep a copy in the compute type") {
    Mixed mixed({Dtype::f32, Dtype::bf16});
    CHECK(mixed.parameters.bytes(true).compute == 3 * 64);
    mixed.allocate();
    for (const Storage& storage : mixed.parameters.storages()) {
        CHECK(bool(storage.compute) != storage.is_gathered());
        CHECK((storage.w.data == storage.compute.data) != storage.is_gathered());
        CHECK(storage.w.dtype == Dtype::bf16);
    }
    fill(mixed[0].master, 1 + 1.0 / 1024);
    mixed.parameters.refresh_compute(mixed.exec, mixed.kernels);
    CHECK(element(mixed[0].w, 3) == 4);
}

TEST_CASE("gathered: every sharding needs its communicators") {
    Mixed mixed({Dtype::f64, Dtype::f64});
    mixed.parameters.allocate(true);
    const auto allocate = [&](const std::vector<GatherRanks>& ranks) {
        mixed.gathered->allocate(ranks, Stream::Mode::eager, mixed.exec, mixed.kernels);
    };
    const GatherRanks two = {mixed.ranks, mixed.ranks, mixed.self},
                      one = {mixed.self, mixed.self, mixed.self};
    CHECK_THROWS_WITH(allocate({two}), Contains("each sharding has its communicators"));
    CHECK_THROWS_WITH(allocate({one, two}), Contains("not those of their shards"));
    CHECK_THROWS_WITH(allocate({two, two}), Contains("not those of their shards"));
    CHECK_NOTHROW(allocate({two, one}));
}
