// SPDX-License-Identifier: Apache-2.0
// Lengths of rows, and which models need a row for each request.
#include "coeus/evaluate/scoring.hpp"

#include "coeus/base/error.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

TEST_CASE("scoring: a row is as long as the context, rounded up to what ranks divide") {
    DecoderConfig model = tiny_config();
    CHECK(row_length_for(model, 48, 1, 1) == 48);
    CHECK(row_length_for(model, 47, 1, 1) == 47);
    CHECK(row_length_for(model, 49, 2, 1) == 50);
    CHECK(row_length_for(model, 49, 1, 2) == 52);
    CHECK(row_length_for(model, 49, 2, 2) == 56);
    const std::vector<RopeScaling> by_length = {
        DynamicScaling{.factor = 2}, LongRopeScaling{.short_factor = {1, 1, 1}, .long_factor = {2, 2, 2}}};
    for (const RopeScaling& scaling : by_length) {
        model.rope.scaling = scaling;
        CHECK(row_length_for(model, 49, 1, 1) == 49);
        CHECK(row_length_for(model, 52, 1, 2) == 52);
        CHECK_THROWS_WITH(row_length_for(model, 49, 1, 2),
                          Contains("--context 49") && Contains("divide into 4 parts") &&
                              Contains("the nearest context that they can divide is 48"));
        model.rope.scaling = {};
        model.window_rope = {.theta = 100, .scaling = scaling};
        CHECK_THROWS_WITH(row_length_for(model, 49, 1, 2), Contains("RoPE depends on the length of a row"));
        model.window_rope = {};
    }
}

TEST_CASE("scoring: chunks of attention and a temperature need a row for each request") {
    DecoderConfig model = tiny_config();
    CHECK_FALSE(needs_row_for_each(model));
    model.grouped().window = 4;
    CHECK_FALSE(needs_row_for_each(model));
    model.grouped().chunk = 4;
    CHECK(needs_row_for_each(model));
    model.grouped().chunk = 0;
    model.without_rope = {.period = 2};
    model.grouped().temperature = {.scale = 0.1};
    CHECK(needs_row_for_each(model));
}
