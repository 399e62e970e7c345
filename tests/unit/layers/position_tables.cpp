// SPDX-License-Identifier: Apache-2.0
// Values computed by hand from the formula of golden/README.md, "Llama 4".
#include "coeus/layers/position_tables.hpp"

#include "support/catch.hpp"
#include "support/support.hpp"

#include <cmath>
#include <vector>

using namespace coeus;
using namespace coeus::test;

TEST_CASE("the temperature of a query grows with the logarithm of its position, in steps") {
    TemperatureTable table(9, {.scale = 0.5, .floor = 3}, Dtype::f64);
    CHECK(table.view().data == nullptr);
    table.allocate();
    REQUIRE(table.view().shape == Shape{9});
    const double steps[] = {0, 0, 1, 1, 1, 2, 2, 2, 3};  // floor((p + 1) / 3)
    for (int64_t p = 0; p < 9; ++p) {
        CAPTURE(p);
        CHECK(relatively_close(element(table.view(), p), 1 + 0.5 * std::log(1 + steps[p]), 1e-14));
    }
    TemperatureTable one(1, {.scale = 0.1, .floor = 1}, Dtype::f32);
    one.allocate();
    CHECK(element(one.view(), 0) == double(float(1 + 0.1 * std::log(2.0))));
}

TEST_CASE("the temperature of a query does not count its own position if the offset is 0") {
    TemperatureTable table(5, {.scale = 0.5, .floor = 2, .offset = 0}, Dtype::f64);
    table.allocate();
    const double steps[] = {0, 0, 1, 1, 2};  // floor(p / 2)
    for (int64_t p = 0; p < 5; ++p)
        CHECK(relatively_close(element(table.view(), p), 1 + 0.5 * std::log(1 + steps[p]), 1e-14));
}

TEST_CASE("without a temperature there is no table") {
    const auto tables = [](const std::vector<double>& thetas, const Temperature& temperature) {
        PositionTables all = {{}, {7, temperature, Dtype::f32}};
        for (const double theta : thetas) all.ropes.emplace_back(7, 4, theta, RopeScaling(), Dtype::f32);
        return all;
    };
    const PositionTables one = tables({100}, {});
    CHECK_FALSE(one.temperature.view());
    CHECK(one.positions() == 7);
    CHECK(one.bytes() == 7 * 4 * 4);
    CHECK(tables({100}, {.scale = 1}).bytes() == 7 * 4 * 4 + 7 * 4);
    PositionTables two = tables({100, 10}, {.scale = 1});
    CHECK(two.bytes() == 2 * 7 * 4 * 4 + 7 * 4);
    two.allocate();
    // the second pair of position 1 turns by 100^(-1/2) and by 10^(-1/2)
    CHECK(close(element(two.ropes[0].view(), 6), std::cos(0.1), 1e-7));
    CHECK(close(element(two.ropes[1].view(), 6), std::cos(std::sqrt(0.1)), 1e-7));
}
