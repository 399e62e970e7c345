// SPDX-License-Identifier: Apache-2.0
// Storages as stacked rows, their memory, and initial values as a function of seed, name and index.
#include "coeus/state/parameters.hpp"

#include "coeus/base/random.hpp"
#include "coeus/state/step_state.hpp"
#include "counted.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"
#include "support/support.hpp"

#include <cmath>

using namespace coeus;
using namespace coeus::test;

namespace {

Param matrix(const std::string& name, int64_t rows, int64_t cols, const Init& init = Init::normal(1)) {
    return {.name = name, .shape = {rows, cols}, .init = init};
}

}  // namespace

TEST_CASE("a storage stacks parameters by rows") {
    Parameters parameters({Dtype::f64, Dtype::f64});
    Storage& storage = parameters.add({matrix("q", 4, 3), matrix("k", 2, 3), matrix("v", 1, 3)});
    CHECK(storage.shape() == Shape{7, 3});
    CHECK(storage.params()[0].first_row == 0);
    CHECK(storage.params()[1].first_row == 4);
    CHECK(storage.params()[2].first_row == 6);
    CHECK(parameters.count() == 21);
    // types and shapes are known before there is memory
    CHECK(storage.w.shape == Shape{7, 3});
    CHECK(storage.w.data == nullptr);
    CHECK(storage.g.dtype == Dtype::f64);
    CHECK(storage.moments.empty());

    parameters.allocate(true);
    for (int64_t i = 0; i < 21; ++i) set_element(storage.master, i, double(i));
    const Tensor k = storage.rows_of(storage.params()[1], storage.w);
    CHECK(k.shape == Shape{2, 3});
    CHECK(values(k) == std::vector<double>{12, 13, 14, 15, 16, 17});
    set_element(storage.rows_of(storage.params()[2], storage.g), 2, 5);
    CHECK(element(storage.g, 20) == 5);
}

TEST_CASE("a storage of one parameter keeps its shape, also that of a vector") {
    Parameters parameters({});
    const Storage& norm = parameters.add({.name = "norm", .shape = {5}, .init = Init::ones()});
    const Storage& cube = parameters.add({.name = "cube", .shape = {2, 3, 4}, .init = Init::ones()});
    CHECK(norm.shape() == Shape{5});
    CHECK(cube.shape() == Shape{2, 3, 4});
    parameters.allocate(false);
    parameters.initialise(1, 3);
    CHECK(norm.rows_of(norm.params()[0], norm.w).shape == Shape{5});
    CHECK(values(norm.w) == std::vector<double>(5, 1));
    CHECK(cube.rows_of(cube.params()[0], cube.master).shape == Shape{2, 3, 4});
}

TEST_CASE("storages refuse parameters that cannot be stacked") {
    Parameters parameters({});
    CHECK_THROWS_WITH(parameters.add(std::vector<Param>{}), Catch::Contains("at least one parameter"));
    CHECK_THROWS_WITH(parameters.add({matrix("a", 2, 3), matrix("b", 2, 4)}),
                      Catch::Contains("parameters of one storage must have equal columns"));
    Param frozen = matrix("b", 2, 3);
    frozen.trainable = false;
    CHECK_THROWS_WITH(parameters.add({matrix("a", 2, 3), frozen}),
                      Catch::Contains("model.frozen: a and b are stored together, so that both must be "
                                      "frozen or neither"));
    Param exact = frozen;
    exact.is_exact = true;
    CHECK_THROWS_WITH(parameters.add({frozen, exact}), Catch::Contains("must be of one type"));
    const std::vector<Param> many(65, matrix("a", 2, 3));
    CHECK_THROWS_WITH(parameters.add(many), Catch::Contains("at most 64 parameters"));
    CHECK_NOTHROW(parameters.add({many.begin() + 1, many.end()}));
}

TEST_CASE("storages refuse parameters whose gradients are of two kinds, and products of some groups") {
    const auto param = [](bool sums_products, int64_t groups = 1) {
        return Param{.name = "w",
                     .shape = {4, 2},
                     .init = Init::ones(),
                     .sums_products = sums_products,
                     .groups = groups};
    };
    Parameters parameters({});
    CHECK_THROWS_WITH(parameters.add({param(true), param(false)}), Contains("gradients of one kind"));
    CHECK_NOTHROW(parameters.add({param(true), param(true)}));
    const Storage& groups = parameters.add({param(true, 2), param(true, 2)});
    groups.forget_gradient();
    CHECK_THROWS_WITH(groups.begin_product(0, 4), Contains("the matrices of all groups"));
    CHECK(groups.begin_product(0, 8));
    CHECK_FALSE(groups.begin_product(0, 8));
}

TEST_CASE("gradients of groups that no product replaced become zero, in one call") {
    Parameters parameters({});
    const auto param = [](const char* name) {
        return Param{.name = name, .shape = {4, 2}, .init = Init::ones(), .sums_products = true, .groups = 2};
    };
    const Storage& storage = parameters.add({param("a"), param("b")});
    parameters.allocate(true);
    for (int64_t i = 0; i < storage.g.count(); ++i) set_element(storage.g, i, 7);
    storage.forget_gradient();
    Exec exec;
    calls = {};
    storage.zero_forgotten(exec, counting_kernels());
    CHECK(calls.zeros == 1);
    CHECK(values(storage.g) == std::vector<double>(16, 0));
    storage.zero_forgotten(exec, counting_kernels());
    CHECK(calls.zeros == 1);
}

TEST_CASE("at the beginning of a step, gradients are zero, or count as zero if they sum products") {
    for (const int ranks : {1, 2}) {
        Parameters parameters({}, ShardPlace{.fsdp = ranks});
        std::vector<bool> sums;
        const auto add = [&](bool sums_products, bool trainable = true) {
            parameters.add({.name = fmt::format("w{}", sums.size()),
                            .shape = {4, 3},
                            .init = Init::ones(),
                            .trainable = trainable,
                            .sums_products = sums_products});
            sums.push_back(sums_products && trainable && ranks == 1);
        };
        for (const bool each : {true, false}) add(each);
        add(true, false);  // frozen, between two that are zeroed in one call
        for (const bool each : {false, true, true, false}) add(each);
        parameters.allocate(true);
        for (int64_t i = 0; i < parameters.gradients().count(); ++i)
            set_element(parameters.gradients(), i, 7);
        Exec exec;
        calls = {};
        parameters.begin_gradients(exec, counting_kernels());
        CHECK(calls.zeros == (ranks == 1 ? 2 : 1));
        for (size_t i = 0; i < sums.size(); ++i) {
            const Storage& storage = parameters.storages()[i];
            CHECK(bool(storage.gradient) == storage.trainable());
            if (storage.is_frozen()) continue;
            CHECK(values(storage.gradient) ==
                  std::vector<double>(size_t(storage.gradient.count()), sums[i] ? 7 : 0));
            CHECK(storage.begin_product(0, 4) == sums[i]);
            CHECK_FALSE(storage.begin_product(0, 4));
        }
    }
}

TEST_CASE("storages refuse more moments than owned rows can carry") {
    Parameters parameters({});
    parameters.add(matrix("a", 2, 3));
    const std::vector<Moment> many(OwnedRows::most_moments + 1, {"m", Dtype::f32});
    CHECK_THROWS_WITH(parameters.keep([&](const Param&) {
        return Parameters::Kept{0, many};
    }),
                      Catch::Contains("an optimizer keeps too many moments"));
}

TEST_CASE("storages refuse parameters that are not divided alike, and unknown shardings") {
    Parameters parameters({});
    const size_t other = parameters.add_sharding({.fsdp = 2});
    const auto of = [](const Shard& shard, int64_t groups = 1) {
        Param param = matrix("a", 4, 3);
        param.shard = shard;
        param.groups = groups;
        return param;
    };
    CHECK_THROWS_WITH(parameters.add({of({}), of({Split::rows})}), Catch::Contains("must be divided alike"));
    CHECK_THROWS_WITH(parameters.add({of({}), of({.sharding = other})}),
                      Catch::Contains("must be divided alike"));
    CHECK_THROWS_WITH(parameters.add({of({}), of({}, 2)}), Catch::Contains("must have equally many groups"));
    CHECK_THROWS_WITH(parameters.add(of({}, 3)), Catch::Contains("each of equal rows"));
    CHECK_THROWS_WITH(parameters.add(of({.sharding = other + 1})),
                      Catch::Contains("the sharding of a parameter was not added"));
    CHECK_THROWS_WITH(parameters.add(of({Split::partial, other})),
                      Catch::Contains("sums over tensor-parallel ranks must be in the dense sharding"));
    const Storage& between = parameters.add({of({}, 2), of({}, 2)});
    CHECK_THROWS_WITH(between.rows_of(between.params()[0], between.w),
                      Catch::Contains("stacked group by group with others are not adjacent"));
}

TEST_CASE("gradients are ordered by sharding, and those summed over tensor-parallel ranks come first") {
    Parameters parameters({Dtype::f64, Dtype::f64}, ShardPlace{.tp = 2});
    const size_t other = parameters.add_sharding({});
    const auto add = [&](const Shard& shard) -> Storage& {
        return parameters.add(
            {.name = "a", .shape = {8, 2}, .init = Init::ones(), .shard = shard});  // two memory lines
    };
    const Storage& first = add({.sharding = other});
    const Storage& second = add({});
    parameters.begin_unit();
    const Storage& third = add({Split::partial});
    const Storage& fourth = add({.sharding = other});
    const Storage& fifth = add({});
    const Storage& sixth = add({.sharding = other});
    parameters.allocate(true);
    const auto* at = static_cast<std::byte*>(parameters.gradients().data);
    for (const Storage* storage : {&third, &second, &fifth, &first, &fourth, &sixth}) {
        CHECK(storage->gradient.data == at);
        CHECK(storage->g.data == at);
        at += 128;
    }
    CHECK(parameters.partial_gradients().count() == 16);
    const auto parts = parameters.gradients_of(1, other);
    CHECK(parts[0].count() == 0);
    CHECK(parts[1].data == fourth.gradient.data);
    CHECK(parts[1].count() == 32);
    CHECK(parameters.gradients_of(1)[0].data == third.gradient.data);
    CHECK(parameters.gradients_of(1)[1].data == fifth.gradient.data);
    CHECK(parameters.gradients_of(1)[1].count() == 16);
    std::vector<const Storage*> order;
    parameters.for_each_in_memory([&](const Storage& storage) { order.push_back(&storage); });
    CHECK(order == std::vector<const Storage*>{&third, &second, &fifth, &first, &fourth, &sixth});
}

TEST_CASE("gradients in bfloat16 follow those in float32 that are not partial, and are half as large") {
    StateTypes types = {Dtype::f32, Dtype::bf16};
    types.gradients_in_bf16 = true;
    for (const int ranks : {1, 2}) {
        CAPTURE(ranks);
        Parameters parameters(types, ShardPlace{.fsdp = ranks});
        const auto add = [&](bool sums_products, Split tp = Split::none, bool trainable = true) -> Storage& {
            return parameters.add({.name = "a",
                                   .shape = {16, 4},
                                   .init = Init::ones(),
                                   .shard = {.tp = tp},
                                   .trainable = trainable,
                                   .sums_products = sums_products});
        };
        const Storage &matrix = add(true), &table = add(false), &partial = add(true, Split::partial);
        parameters.begin_unit();
        add(true, Split::none, false);  // frozen: it has no gradient
        const Storage &whole = add(false), &other = add(true), &third = add(true);
        for (const Storage* storage : {&matrix, &other, &third}) {
            CHECK(storage->g.dtype == Dtype::bf16);
            CHECK(storage->gradient.dtype == (ranks == 1 ? Dtype::bf16 : Dtype::f32));
        }
        for (const Storage* storage : {&table, &partial, &whole}) {
            CHECK(storage->g.dtype == Dtype::f32);
            CHECK(storage->gradient.dtype == Dtype::f32);
        }
        // half of a matrix in float32 is as large as all of it in bfloat16
        const int64_t narrow = 128, wide = 256 / ranks;
        CHECK(parameters.bytes(true).gradients == 3 * narrow + 3 * wide);
        parameters.allocate(true);
        CHECK(parameters.partial_gradients().dtype == Dtype::f32);
        CHECK(parameters.partial_gradients().bytes() == wide);
        CHECK(parameters.partial_gradients().data == partial.gradient.data);
        if (ranks == 2) continue;
        CHECK_THROWS_WITH(parameters.gradients(),
                          Catch::Contains("gradients of two types are not one vector"));
        const auto* at = static_cast<std::byte*>(partial.gradient.data);
        for (const Storage* storage : {&partial, &table, &whole, &matrix, &other, &third}) {
            CHECK(storage->gradient.data == at);
            CHECK(storage->g.data == at);
            at += storage->gradient.bytes();
        }
        const auto parts = parameters.gradients_of(1);
        CHECK(parts[0].count() == 0);
        CHECK(parts[1].data == whole.gradient.data);
        CHECK(parts[1].count() == 64);
        CHECK(parts[2].data == other.gradient.data);
        CHECK(parts[2].dtype == Dtype::bf16);
        CHECK(parts[2].count() == 128);
        // the gradients that do not sum products are zero, the others count as zero
        const std::vector<const Storage*> trained = {&partial, &table, &whole, &matrix, &other, &third};
        for (const Storage* storage : trained)
            for (int64_t i = 0; i < 64; ++i) set_element(storage->gradient, i, 7);
        Exec exec;
        parameters.begin_gradients(exec, cpu_kernels());
        for (const Storage* storage : trained)
            CHECK(values(storage->gradient) == std::vector<double>(64, storage->sums_products() ? 7 : 0));
        other.zero_forgotten(exec, cpu_kernels());
        CHECK(values(other.gradient) == std::vector<double>(64, 0));
        CHECK(values(third.gradient) == std::vector<double>(64, 7));
    }
}

TEST_CASE("the allocated memory is the announced memory, and every matrix is aligned") {
    struct Types {
        StateTypes types;
        int64_t master, compute, gradient;  // bytes per element
    };
    for (const Types& t :
         {Types{{Dtype::f32, Dtype::f32}, 4, 0, 4}, Types{{Dtype::f32, Dtype::bf16}, 4, 2, 4},
          Types{{Dtype::bf16, Dtype::bf16}, 2, 0, 4}, Types{{Dtype::f64, Dtype::f64}, 8, 0, 8}}) {
        CAPTURE(name_of(t.types.master), name_of(t.types.compute));
        Parameters parameters(t.types);
        parameters.add(matrix("a", 3, 11));
        parameters.add({matrix("b", 1, 1), matrix("c", 2, 1)});
        parameters.add(matrix("d", 4, 16));
        parameters.keep([&](const Param&) -> Parameters::Kept {
            return {0, {{"first", t.types.master}, {"second", Dtype::bf16}}};
        });
        const auto padded = [](int64_t size) {
            return round_up(33 * size, 64) + round_up(3 * size, 64) + round_up(64 * size, 64);
        };
        const Parameters::Bytes with = parameters.bytes(true), without = parameters.bytes(false);
        CHECK(with.master == padded(t.master));
        CHECK(with.compute == padded(t.compute));
        CHECK(with.gradients == padded(t.gradient));
        CHECK(with.moments == padded(t.master) + padded(2));
        CHECK(with.total() == with.master + with.compute + with.gradients + with.moments);
        CHECK(without.total() == with.master + with.compute);

        parameters.allocate(true);
        CHECK(parameters.gradients().bytes() == with.gradients);
        for (const Storage& s : parameters.storages()) {
            for (const Tensor& tensor : {s.w, s.g, s.master, s.moments[0], s.moments[1]}) {
                CHECK(reinterpret_cast<uintptr_t>(tensor.data) % 64 == 0);
                CHECK(tensor.shape == s.shape());
                CHECK(values(tensor) == std::vector<double>(size_t(tensor.count()), 0));
            }
            CHECK((s.w.data == s.master.data) == (t.compute == 0));
            CHECK(s.w.dtype == t.types.compute);
            CHECK(s.moments[0].dtype == t.types.master);
            CHECK(s.moments[1].dtype == Dtype::bf16);
            const auto* first = static_cast<std::byte*>(parameters.gradients().data);
            const auto* g = static_cast<std::byte*>(s.g.data);
            CHECK((g >= first && g + s.g.bytes() <= first + with.gradients));
        }
    }
}

TEST_CASE("without an optimizer there are only weights") {
    Parameters parameters({Dtype::f32, Dtype::bf16});
    const Storage& s = parameters.add(matrix("a", 3, 5));
    parameters.allocate(false);
    CHECK(s.w.data != nullptr);
    CHECK(s.master.data != nullptr);
    CHECK(s.g.data == nullptr);
    CHECK(s.moments.empty());
    CHECK_FALSE(bool(parameters.gradients()));
}

TEST_CASE("initial values depend only on seed, name and index") {
    const auto drawn = [](bool fused, int threads, uint64_t seed) {
        Parameters parameters({Dtype::f64, Dtype::f64});
        const std::vector<Param> params = {matrix("q", 7, 5), matrix("k", 3, 5),
                                           matrix("v", 1, 5, Init::truncated_normal(0.5, 1))};
        if (fused) {
            parameters.add(params);
        } else {
            parameters.add(matrix("before", 2, 2));
            for (const Param& param : params) parameters.add(param);
        }
        parameters.allocate(true);
        parameters.initialise(seed, threads);
        std::vector<double> all;
        for (const Storage& storage : parameters.storages())
            for (const Param& param : storage.params())
                if (param.name != "before")
                    for (const double x : values(storage.rows_of(param, storage.master))) all.push_back(x);
        return all;
    };
    const std::vector<double> one = drawn(true, 1, 42);
    CHECK(one.size() == 55);
    for (const int threads : {2, 4, 100}) CHECK(drawn(true, threads, 42) == one);
    CHECK(drawn(false, 1, 42) == one);
    CHECK(drawn(false, 4, 42) == one);
    const std::vector<double> other = drawn(true, 1, 43);
    for (size_t i = 0; i < one.size(); ++i) CHECK(other[i] != one[i]);
    // element 4 of "k", by its definition
    CHECK(one[35 + 4] == normal_quantile(RandomStream(42, "k").uniform(4)));
    const auto [low, high] = std::minmax_element(one.begin() + 50, one.end());
    CHECK(*low >= -1);
    CHECK(*high <= 1);
}

TEST_CASE("initial values: constants, normal and truncated normal distributions") {
    constexpr int64_t n = 40000;
    Parameters parameters({Dtype::f64, Dtype::f64});
    const Storage& normal = parameters.add(matrix("normal", n, 1, Init::normal(0.02)));
    const Storage& cut = parameters.add(matrix("cut", n, 1, Init::truncated_normal(2, 3)));
    const Storage& ones = parameters.add(matrix("ones", 3, 3, Init::ones()));
    const Storage& zeros = parameters.add(matrix("zeros", 3, 3, Init{}));
    parameters.allocate(true);
    parameters.initialise(9, 4);
    const auto moments = [](const Storage& storage) {
        double sum = 0, squares = 0, largest = 0;
        for (const double x : values(storage.master)) {
            sum += x;
            squares += x * x;
            largest = worse_of(largest, std::fabs(x));
        }
        return std::array{sum / n, std::sqrt(squares / n), largest};
    };
    const auto [mean, deviation, largest] = moments(normal);
    CHECK(close(mean, 0, 5 * 0.02 / 200));
    CHECK(close(deviation, 0.02, 5 * 0.02 / 283));
    CHECK(largest > 3.5 * 0.02);
    const auto [cut_mean, cut_deviation, cut_largest] = moments(cut);
    CHECK(close(cut_mean, 0, 5 * 2.0 / 200));
    // of a normal truncated at b = 1.5 standard deviations: 2 sqrt(1 - 2 b phi(b) / (2 Phi(b) - 1)) = 1.4851
    CHECK(close(cut_deviation, 1.4851, 0.03));
    CHECK(cut_largest <= 3);
    CHECK(cut_largest > 2.99);
    CHECK(values(ones.master) == std::vector<double>(9, 1));
    CHECK(values(zeros.master) == std::vector<double>(9, 0));
}

TEST_CASE("the compute copy is the rounded master weights") {
    Exec exec;
    Parameters parameters({Dtype::f32, Dtype::bf16});
    const Storage& s = parameters.add({matrix("a", 3, 5), matrix("b", 2, 5)});
    parameters.allocate(true);
    parameters.initialise(1, 1);
    CHECK(element(s.w, 0) == 0);
    parameters.refresh_compute(exec, cpu_kernels());
    int rounded = 0;
    for (int64_t i = 0; i < s.w.count(); ++i) {
        CHECK(element(s.w, i) == double(float(bf16(float(element(s.master, i))))));
        rounded += element(s.w, i) != element(s.master, i);
    }
    CHECK(rounded > 20);

    Parameters same({Dtype::f32, Dtype::f32});
    const Storage& one = same.add(matrix("a", 3, 5));
    same.allocate(true);
    same.initialise(1, 1);
    same.refresh_compute(exec, cpu_kernels());
    CHECK(one.w.data == one.master.data);
    CHECK(element(one.w, 0) == double(float(normal_quantile(RandomStream(1, "a").uniform(0)))));
}

TEST_CASE("gradients and statistics are in f64 for f64 and f32 otherwise") {
    CHECK(StateTypes{Dtype::f64, Dtype::f64}.accumulate() == Dtype::f64);
    CHECK(StateTypes{Dtype::f32, Dtype::f32}.accumulate() == Dtype::f32);
    CHECK(StateTypes{Dtype::f32, Dtype::bf16}.accumulate() == Dtype::f32);
    CHECK(StateTypes{Dtype::bf16, Dtype::bf16}.accumulate() == Dtype::f32);
}

TEST_CASE("the scalars of a new step mean a step without clipping") {
    const StepState state;
    CHECK(state.scalars().clip == 1);
    CHECK(state.scalars().refusals == 0);
    CHECK(state.scalars().loss == 0);
    CHECK(state.scalars().step == 0);
    state.scalars().loss = 2;
    CHECK(state.scalars().loss == 2);
}

TEST_CASE("the scalars of a step are written and read as a whole") {
    Exec exec;
    StepState state;
    state.stage({.learning_rate = 0.5, .step = 7});
    state.bring(exec);
    CHECK(state.scalars().learning_rate == 0.5);
    CHECK(state.scalars().step == 7);
    state.scalars().loss = 3;
    CHECK(state.read(exec).loss == 3);
    CHECK(state.last_read().loss == 3);
}
