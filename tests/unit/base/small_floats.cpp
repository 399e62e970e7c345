// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/small_floats.hpp"

#include "support/catch.hpp"

#include <cmath>

using namespace coeus;

namespace {

// The value by the definition of a format: sign, exponent, fraction, from the highest bit on.
double by_definition(int code, int exponent_bits, int fraction_bits, int bias) {
    const int fraction = code % (1 << fraction_bits), rest = code >> fraction_bits;
    const int exponent = rest % (1 << exponent_bits), sign = rest >> exponent_bits;
    const double significand = double(fraction) / double(1 << fraction_bits);
    const double magnitude = exponent == 0 ? significand * std::pow(2., 1 - bias)
                                           : (1 + significand) * std::pow(2., exponent - bias);
    return sign ? -magnitude : magnitude;
}

}  // namespace

TEST_CASE("small floats: all codes of E2M1") {
    for (int code = 0; code < 16; ++code) {
        const float value = e2m1_value(uint8_t(code));
        CHECK(double(value) == by_definition(code, 2, 1, 1));
        CHECK(std::signbit(value) == (code >= 8));
        CHECK(std::signbit(e2m1_value(uint8_t(code + 0x70))) == (code >= 8));
    }
}

TEST_CASE("small floats: all codes of E4M3") {
    for (int code = 0; code < 256; ++code) {
        CAPTURE(code);
        const float value = e4m3_value(uint8_t(code));
        CHECK(std::isnan(value) == (code % 128 == 127));
        if (std::isnan(value)) continue;
        CHECK(double(value) == by_definition(code, 4, 3, 7));
        CHECK(std::signbit(value) == (code >= 128));
    }
    CHECK(e4m3_value(0x7e) == 448.F);
    CHECK(e4m3_value(0x01) == 0x1p-9F);
}

TEST_CASE("small floats: all codes of E8M0") {
    for (int code = 0; code < 255; ++code)
        CHECK(double(e8m0_value(uint8_t(code))) == std::pow(2., code - 127));
    CHECK(std::isnan(e8m0_value(255)));
}
