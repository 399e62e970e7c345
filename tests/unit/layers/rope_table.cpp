// SPDX-License-Identifier: Apache-2.0
// Values computed by hand from the formulas of golden/README.md: "RoPE scaling llama3".
#include "coeus/layers/rope_table.hpp"

#include "support/catch.hpp"
#include "support/support.hpp"

#include <cmath>
#include <numbers>

using namespace coeus;
using namespace coeus::test;

TEST_CASE("RoPE frequencies fall from 1 to nearly 1 / theta") {
    const std::vector<double> f = rope_frequencies(8, 10000, {});
    REQUIRE(f.size() == 4);
    for (size_t j = 0; j < 4; ++j) CHECK(relatively_close(f[j], std::pow(10, -double(j)), 1e-14));
    CHECK(rope_frequencies(2, 500000, {}) == std::vector<double>{1});
}

TEST_CASE("Llama 3.1's scaling keeps high frequencies, lowers low ones and blends in between") {
    const RopeScaling scaling = {.factor = 8,
                                 .low_frequency = 1,
                                 .high_frequency = 4,
                                 .original_positions = 2 * std::numbers::pi * 100};
    // turns over the original context: 100 f; frequencies 1, 0.1, 0.01, 0.001 make 100, 10, 1 and 0.1 turns
    const std::vector<double> f = rope_frequencies(8, 10000, scaling);
    CHECK(relatively_close(f[0], 1, 1e-14));
    CHECK(relatively_close(f[1], 0.1, 1e-14));
    CHECK(relatively_close(f[2], 0.01 / 8, 1e-12));  // exactly at the lower limit
    CHECK(relatively_close(f[3], 0.001 / 8, 1e-14));

    // 100 * 0.02 = 2 turns: s = (2 - 1) / (4 - 1)
    const double theta = 2500;  // head dimension 4: frequencies 1 and theta^(-1/2) = 0.02
    const std::vector<double> g = rope_frequencies(4, theta, scaling);
    CHECK(relatively_close(g[1], (2.0 / 3) * 0.02 / 8 + (1.0 / 3) * 0.02, 1e-14));
}

TEST_CASE("the table holds cosine and sine of each position and pair") {
    for (const Dtype dtype : {Dtype::f64, Dtype::f32}) {
        const RopeTable table(5, 6, 1000, {}, dtype);
        REQUIRE(table.view().shape == Shape{5, 6});
        CHECK(table.view().dtype == dtype);
        const double tolerance = dtype == Dtype::f64 ? 1e-15 : 1e-7;
        for (int64_t p = 0; p < 5; ++p)
            for (int64_t j = 0; j < 3; ++j) {
                const double angle = double(p) * std::pow(1000, -double(2 * j) / 6);
                CHECK(close(element(table.view(), p * 6 + 2 * j), std::cos(angle), tolerance));
                CHECK(close(element(table.view(), p * 6 + 2 * j + 1), std::sin(angle), tolerance));
            }
    }
}
