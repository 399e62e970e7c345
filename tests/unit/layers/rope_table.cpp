// SPDX-License-Identifier: Apache-2.0
// Values computed by hand from the formulas of golden/README.md: "RoPE scaling llama3".
#include "coeus/layers/rope_table.hpp"

#include "support/catch.hpp"
#include "support/support.hpp"

#include <array>
#include <cmath>
#include <numbers>

using namespace coeus;
using namespace coeus::test;

TEST_CASE("RoPE frequencies fall from 1 to nearly 1 / theta") {
    const std::vector<double> f = rope_frequencies(8, 10000, {}, 1);
    REQUIRE(f.size() == 4);
    for (size_t j = 0; j < 4; ++j) CHECK(relatively_close(f[j], std::pow(10, -double(j)), 1e-14));
    CHECK(rope_frequencies(2, 500000, {}, 1) == std::vector<double>{1});
}

TEST_CASE("Llama 3.1's scaling keeps high frequencies, lowers low ones and blends in between") {
    const Llama3Scaling scaling = {.factor = 8,
                                   .low_frequency = 1,
                                   .high_frequency = 4,
                                   .original_positions = 2 * std::numbers::pi * 100};
    // turns over the original context: 100 f; frequencies 1, 0.1, 0.01, 0.001 make 100, 10, 1 and 0.1 turns
    const std::vector<double> f = rope_frequencies(8, 10000, scaling, 1);
    CHECK(relatively_close(f[0], 1, 1e-14));
    CHECK(relatively_close(f[1], 0.1, 1e-14));
    CHECK(relatively_close(f[2], 0.01 / 8, 1e-12));  // exactly at the lower limit
    CHECK(relatively_close(f[3], 0.001 / 8, 1e-14));

    // 100 * 0.02 = 2 turns: s = (2 - 1) / (4 - 1)
    const double theta = 2500;  // head dimension 4: frequencies 1 and theta^(-1/2) = 0.02
    const std::vector<double> g = rope_frequencies(4, theta, scaling, 1);
    CHECK(relatively_close(g[1], (2.0 / 3) * 0.02 / 8 + (1.0 / 3) * 0.02, 1e-14));
}

TEST_CASE("Llama 3.1's scaling without a band in between keeps or lowers each frequency") {
    const Llama3Scaling scaling = {.factor = 16,
                                   .low_frequency = 1,
                                   .high_frequency = 1,
                                   .original_positions = 2 * std::numbers::pi * 100};
    const std::vector<double> f = rope_frequencies(8, 10000, scaling, 1);
    CHECK(relatively_close(f[1], 0.1, 1e-14));
    CHECK(relatively_close(f[3], 0.001 / 16, 1e-14));
    for (const double one : f) CHECK(std::isfinite(one));
}

TEST_CASE("YaRN keeps fast pairs, slows slow ones by the factor, and is linear in the pair in between") {
    // pairs turn 100, 10, 1 and 0.1 times within the original positions
    YarnScaling scaling = {.factor = 8,
                           .original_positions = 2 * std::numbers::pi * 100,
                           .beta_fast = 10,
                           .beta_slow = 1,
                           .truncate = false};
    const double f[] = {1, 0.1, 0.01, 0.001};
    const auto check = [&](std::array<double, 4> ramp) {
        const std::vector<double> scaled = rope_frequencies(8, 10000, scaling, 1);
        for (size_t j = 0; j < 4; ++j)
            CHECK(relatively_close(scaled[j], ramp[j] * f[j] / 8 + (1 - ramp[j]) * f[j], 1e-12));
    };
    check({0, 0, 1, 1});
    scaling.beta_slow = 0.1;
    check({0, 0, 0.5, 1});
    // 10^1/2 turns: between pairs 0.5 and 2.5
    scaling = {.factor = 8,
               .original_positions = 2 * std::numbers::pi * 100,
               .beta_fast = std::sqrt(1000),
               .beta_slow = std::sqrt(0.1),
               .truncate = false};
    check({0, 0.25, 0.75, 1});
    scaling.truncate = true;  // between pairs 0 and 3
    check({0, 1.0 / 3, 2.0 / 3, 1});
    scaling.beta_slow = scaling.beta_fast = 10;  // a step
    scaling.truncate = false;
    check({0, 0, 1, 1});
    scaling.beta_fast = 1e9;  // pairs before the first one
    scaling.beta_slow = 10;
    check({0, 1, 1, 1});
}

TEST_CASE("YaRN's factor of cosine and sine") {
    const double m1 = 0.1 * std::log(40.0) + 1, m07 = 0.07 * std::log(40.0) + 1;
    CHECK(rope_magnitude({}) == 1);
    CHECK(rope_magnitude(Llama3Scaling{}) == 1);
    CHECK(relatively_close(rope_magnitude(YarnScaling{.factor = 40}), m1, 1e-15));
    CHECK(rope_magnitude(YarnScaling{.factor = 40, .attention_factor = 1.25, .mscale = 1}) == 1.25);
    CHECK(rope_magnitude(YarnScaling{.factor = 40, .mscale = 0.7, .mscale_all_dim = 0.7}) == 1);
    CHECK(relatively_close(rope_magnitude(YarnScaling{.factor = 40, .mscale = 1, .mscale_all_dim = 0.7}),
                           m1 / m07, 1e-15));
    RopeTable table(3, 4, 1000, YarnScaling{.factor = 40, .attention_factor = 2}, Dtype::f64);
    table.allocate();
    CHECK(element(table.view(), 0) == 2);  // cos 0
}

TEST_CASE("the table holds cosine and sine of each position and pair") {
    for (const Dtype dtype : {Dtype::f64, Dtype::f32}) {
        RopeTable table(5, 6, 1000, {}, dtype);
        REQUIRE(table.view().shape == Shape{5, 6});
        CHECK(table.view().dtype == dtype);
        CHECK(table.view().data == nullptr);
        table.allocate();
        REQUIRE(table.view().shape == Shape{5, 6});
        const double tolerance = dtype == Dtype::f64 ? 1e-15 : 1e-7;
        for (int64_t p = 0; p < 5; ++p)
            for (int64_t j = 0; j < 3; ++j) {
                const double angle = double(p) * std::pow(1000, -double(2 * j) / 6);
                CHECK(close(element(table.view(), p * 6 + 2 * j), std::cos(angle), tolerance));
                CHECK(close(element(table.view(), p * 6 + 2 * j + 1), std::sin(angle), tolerance));
            }
    }
}

TEST_CASE("a table of other angles has those of its function") {
    // two axes of a picture of 3 columns, a pair each
    const auto angle = [](int64_t position, int64_t pair) {
        return double(pair == 0 ? position / 3 : position % 3) / 4;
    };
    RopeTable table(6, 4, angle, Dtype::f64);
    REQUIRE(table.view().shape == Shape{6, 4});
    CHECK(table.view().data == nullptr);
    table.allocate();
    for (int64_t p = 0; p < 6; ++p)
        for (int64_t j = 0; j < 2; ++j) {
            CHECK(close(element(table.view(), p * 4 + 2 * j), std::cos(angle(p, j)), 1e-15));
            CHECK(close(element(table.view(), p * 4 + 2 * j + 1), std::sin(angle(p, j)), 1e-15));
        }
}
