// SPDX-License-Identifier: Apache-2.0
// The comparisons that tests use: nothing that is infinite or not a number is close to anything else.
#include "support/catch.hpp"
#include "support/support.hpp"

#include <cmath>
#include <limits>
#include <vector>

using namespace coeus::test;

namespace {

constexpr double endless = std::numeric_limits<double>::infinity();
const double not_a_number = std::nan("");

}  // namespace

TEST_CASE("comparison: the worse of two errors is NaN if one is, and remains so") {
    CHECK(worse_of(1, 2) == 2);
    CHECK(worse_of(2, 1) == 2);
    CHECK(worse_of(0, 0) == 0);
    CHECK(worse_of(1, endless) == endless);
    for (const double other : {0.0, 1.0, endless, not_a_number}) {
        CHECK(std::isnan(worse_of(not_a_number, other)));
        CHECK(std::isnan(worse_of(other, not_a_number)));
    }
    double worst = 0;
    for (const double error : {1.0, not_a_number, 2.0, 3.0}) worst = worse_of(worst, error);
    CHECK(std::isnan(worst));
}

TEST_CASE("comparison: nothing is close to NaN, and only the same infinity is close to an infinity") {
    for (const double x : {0.0, 1.0, -3.0, endless, -endless, not_a_number}) {
        CHECK_FALSE(close(x, not_a_number, 1e9));
        CHECK_FALSE(close(not_a_number, x, 1e9));
        CHECK_FALSE(relatively_close(x, not_a_number, 1e9));
        CHECK_FALSE(relatively_close(not_a_number, x, 1e9));
        CHECK(relatively_close(x, endless, 1e9) == (x == endless));
        CHECK(relatively_close(-endless, x, 1e9) == (x == -endless));
    }
    CHECK(relatively_close(0, 0, 0));
    CHECK(relatively_close(1, 1 + 1e-7, 1e-6));
    CHECK_FALSE(relatively_close(1, 1 + 1e-5, 1e-6));
}

TEST_CASE("comparison: the error of a vector is a number only if all of its elements are") {
    const std::vector<double> right = {3, 4}, zeros = {0, 0};
    CHECK(normalised_error(right, right) == 0);
    CHECK(normalised_error(std::vector<double>{3, 4.5}, right) == 0.1);
    CHECK(normalised_error(right, zeros) == 5);
    for (const double bad : {not_a_number, endless, -endless})
        for (const auto& vector : {std::vector<double>{bad, 4}, std::vector<double>{3, bad}}) {
            CHECK_FALSE(normalised_error(vector, right) <= 1e9);
            CHECK_FALSE(normalised_error(right, vector) <= 1e9);
            CHECK_FALSE(normalised_error(vector, vector) <= 1e9);
        }
}
