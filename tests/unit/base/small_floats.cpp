// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/small_floats.hpp"

#include "coeus/base/random.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

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

template <class Format>
void check_codes(int exponent_bits, bool (*is_nan)(int magnitude)) {
    for (int code = 0; code < 256; ++code) {
        CAPTURE(code);
        const float value = decode<Format>(uint8_t(code));
        CHECK(std::isnan(value) == is_nan(code % 128));
        CHECK(std::signbit(value) == (code >= 128));
        if (std::isfinite(value))
            CHECK(double(value) == by_definition(code, exponent_bits, Format::fraction, Format::bias));
        CHECK(int(encode<Format>(value)) ==  // largest codes stand for all that is larger
              (is_nan(code % 128) ? 127 : std::min(code % 128, int(Format::largest_code))) +
                  code / 128 * 128);
    }
}

/// Finds the code of a number in a table of the values of all codes. Ties go to the even code.
template <class Format>
class NearestCode {
public:
    NearestCode() {
        for (int code = 0; code <= Format::largest_code; ++code)
            values_.push_back(by_definition(code, 7 - Format::fraction, Format::fraction, Format::bias));
    }
    uint8_t operator()(float x) const {
        const int sign = std::signbit(x) ? 128 : 0;
        if (std::isnan(x)) return uint8_t(sign + 127);
        const double size = std::fabs(double(x));
        const auto above = std::lower_bound(values_.begin(), values_.end(), size);
        if (above == values_.end()) return uint8_t(sign + Format::largest_code);
        const int code = int(above - values_.begin());
        if (code == 0) return uint8_t(sign);
        const double to_above = *above - size, to_below = size - *(above - 1);
        const bool below = to_below < to_above || (to_below == to_above && code % 2 == 1);
        return uint8_t(sign + code - (below ? 1 : 0));
    }

private:
    std::vector<double> values_;
};

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
    check_codes<E4m3>(4, [](int magnitude) { return magnitude == 127; });
    CHECK(e4m3_value(0x7e) == 448.F);
    CHECK(e4m3_value(0x01) == 0x1p-9F);
}

TEST_CASE("small floats: all codes of E5M2") {
    check_codes<E5m2>(5, [](int magnitude) { return magnitude > 124; });
    CHECK(e5m2_value(0x7b) == 57344.F);
    CHECK(e5m2_value(0x01) == 0x1p-16F);
    CHECK(e5m2_value(0x7c) == std::numeric_limits<float>::infinity());
    CHECK(e5m2_value(0xfc) == -std::numeric_limits<float>::infinity());
}

TEST_CASE("small floats: a number becomes the nearest code") {
    const RandomStream random(1, "small floats");
    int64_t wrong = 0;
    float last_wrong = 0;
    const auto check = [&]<class Format>(Format, const NearestCode<Format>& nearest, uint32_t bits) {
        const float x = std::bit_cast<float>(bits);
        if (encode<Format>(x) == nearest(x)) return;
        ++wrong;
        last_wrong = x;
    };
    const auto check_all = [&]<class Format>(Format format) {
        const NearestCode<Format> nearest;
        for (uint32_t high = 0; high < 1U << 16; ++high) check(format, nearest, high << 16);  // bfloat16
        for (uint64_t i = 0; i < uint64_t(1) << 22; ++i) {
            // every second number has an exponent near those of the format
            const auto bits = uint32_t(random.u64(i));
            constexpr uint32_t exponents = 2U << (7 - Format::fraction);
            const uint32_t exponent = 127 - exponents / 2 + (bits >> 23) % exponents;
            check(format, nearest, i % 2 ? bits : (bits & 0x807fffffU) | exponent << 23);
        }
        INFO(last_wrong << " with " << Format::fraction << " bits of fraction");
        CHECK(wrong == 0);
    };
    check_all(E4m3());
    check_all(E5m2());
}

TEST_CASE("small floats: a rounded number is the value of its code") {
    const auto check = [](uint32_t bits) {
        const auto same = [&]<class Format>(Format) {
            const float x = std::bit_cast<float>(bits), is = rounded<Format>(x),
                        should = decode<Format>(encode<Format>(x));
            return std::bit_cast<uint32_t>(is) == std::bit_cast<uint32_t>(should);
        };
        return same(E4m3()) && same(E5m2());
    };
    int64_t wrong = 0;
    // all numbers of bfloat16 with their neighbours: ties, subnormal numbers, infinity and NaN are among them
    for (uint32_t high = 0; high < 0x10000; ++high)
        for (const uint32_t low : {0U, 1U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU})
            wrong += !check(high << 16 | low);
    CHECK(wrong == 0);
}

TEST_CASE("small floats: all codes of E8M0") {
    for (int code = 0; code < 255; ++code)
        CHECK(double(e8m0_value(uint8_t(code))) == std::pow(2., code - 127));
    CHECK(std::isnan(e8m0_value(255)));
}
