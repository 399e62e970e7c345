// SPDX-License-Identifier: Apache-2.0
// Values computed by hand from the formula of golden/README.md, "Llama 4".
#include "coeus/layers/position_tables.hpp"

#include "support/catch.hpp"
#include "support/support.hpp"

#include <cmath>

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

TEST_CASE("without a temperature there is no table") {
    const PositionTables tables = {{7, 4, 100, {}, Dtype::f32}, {7, {}, Dtype::f32}};
    CHECK_FALSE(tables.temperature.view());
    CHECK(tables.positions() == 7);
    CHECK(tables.bytes() == 7 * 4 * 4);
    const PositionTables both = {{7, 4, 100, {}, Dtype::f32}, {7, {.scale = 1}, Dtype::f32}};
    CHECK(both.bytes() == 7 * 4 * 4 + 7 * 4);
}
