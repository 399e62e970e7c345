// SPDX-License-Identifier: Apache-2.0
// Initial values against their definition, element by element, and in the tails, which no parameter is long
// enough to reach. This file is compiled with -ffp-contract=off.
#include "../../../src/kernels/rows/draw.hpp"

#include "support/cases.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <cmath>
#include <limits>
#include <vector>

using namespace coeus;
using namespace coeus::test;

namespace {

double value_by_definition(const Init& init, double u) {
    if (init.std == 0) return init.bound == 0 ? init.constant : init.bound * (2 * u - 1);
    const double below = init.bound > 0 ? normal_cdf(-init.bound / init.std) : 0;
    return init.std * normal_quantile(below + u * (1 - 2 * below));
}

// Random bits that no stream gives in reasonable time: the least and the greatest u, both sides of the
// limit between the two formulas of a tail, and of that between tail and centre.
std::vector<uint64_t> bits_of_tails() {
    std::vector<uint64_t> all;
    for (const double u : {0x1p-54, 0x1p-53, 1.3e-11, 1.38e-11, 1.39e-11, 1.5e-11, 1e-6, 0.0749999, 0.075,
                           0.0750001, 0.5, 0.925})
        for (const double p : {u, 1 - u}) {
            const auto middle = uint64_t(p * 0x1p53);
            for (int64_t near = -3; near <= 3; ++near)
                if (const uint64_t x = middle + uint64_t(near); x < (uint64_t(1) << 53))
                    all.push_back(x << 11);
        }
    all.push_back(0);
    all.push_back(~uint64_t(0));
    return all;
}

}  // namespace

TEST_CASE("draw: each element has the value of its index, by definition, in every type") {
    struct Place {
        int64_t count, run;
        uint64_t first, stride;
    };
    for (const Init& init : {Init::ones(), Init{}, Init::normal(0.02), Init::truncated_normal(0.5, 1.5),
                             Init::truncated_normal(1, 40), Init::uniform(0.25)})
        for (const Place& of : {Place{20001, 0, 3, 0}, Place{1001, 13, 5, 29}, Place{999, 1, 4, 3}})
            for (const Dtype type : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
                CAPTURE(init.std, init.bound, of.count, name_of(type));
                const OwnedTensor drawn(type, {of.count}), expected(type, {of.count});
                Exec exec;
                exec.threads = 2;
                cpu_kernels().draw(
                    exec, drawn, init, 42,
                    {.stream = stream_of("k"), .first_index = of.first, .run = of.run, .stride = of.stride});
                const RandomStream random(42, "k");
                const int64_t run = of.run > 0 ? of.run : of.count;
                for (int64_t i = 0; i < of.count; ++i) {
                    const uint64_t index = of.first + uint64_t(i / run) * of.stride + uint64_t(i % run);
                    set_element(expected, i, value_by_definition(init, random.uniform(index)));
                }
                CHECK(values_of(drawn) == values_of(expected));
            }
}

TEST_CASE("draw: tails have the bits of the definition, and are finite") {
    const std::vector<uint64_t> bits = bits_of_tails();
    const auto count = int64_t(bits.size());
    std::vector<double> drawn(bits.size());
    const Init init = Init::normal(1);
    rows::draw_row<rows::Drawn::normal>(rows::Lane(), drawn.data(), count, rows::draw_factors(init),
                                        [&](int64_t) { return [&](int64_t j) { return bits[size_t(j)]; }; });
    for (size_t i = 0; i < bits.size(); ++i) {
        CAPTURE(bits[i]);
        CHECK(drawn[i] == value_by_definition(init, uniform_of(bits[i])));
        CHECK(std::isfinite(drawn[i]));
    }
    CHECK(relatively_close(drawn[bits.size() - 2], -8.29236107581360, 1e-12));  // of 2^-54
    CHECK(relatively_close(drawn.back(), 8.20953615160138, 1e-12));             // of 1 - 2^-53
}

TEST_CASE("draw: the logarithm is within 1 unit in the last place") {
    const RandomStream random(3, "logarithm");
    double worst = 0;
    const auto check = [&](double x) {
        const long double exact = std::log(static_cast<long double>(x));
        const double ulp =
            std::fabs(std::nextafter(double(exact), std::numeric_limits<double>::infinity()) - double(exact));
        worst = worse_of(worst, double(std::fabs(normal::log_of(x) - exact)) / ulp);
    };
    for (uint64_t i = 0; i < 50000; ++i) {
        check(random.uniform(i) * 0.075);
        check(std::exp(-37 * random.uniform(i)));
        check(1 + random.uniform(i));
    }
    for (const double x : {0x1p-54, 0x1p-53, 0.075, 0.5, std::sqrt(0.5), std::sqrt(2.0), 2.0, 1e-300, 1e300})
        check(x);
    CHECK(worst <= 1);
    CHECK(worst > 0.5);  // so the reference is another one
    CHECK(normal::log_of(1) == 0);
}

TEST_CASE("draw: rows that are not adjacent are refused") {
    const OwnedTensor matrix(Dtype::f32, {4, 6});
    Exec exec;
    CHECK_THROWS_WITH(cpu_kernels().draw(exec, matrix.view.slice_cols(1, 2), Init::ones(), 1, {}),
                      Catch::Contains("draw: rows are not adjacent"));
    const OwnedTensor index(Dtype::i32, {4});
    CHECK_THROWS_WITH(cpu_kernels().draw(exec, index, Init::normal(1), 1, {}),
                      Catch::Contains("takes floats"));
}
