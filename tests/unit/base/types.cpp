// SPDX-License-Identifier: Apache-2.0
// Rounding to bfloat16 and half precision: ties, overflow, subnormals, NaN; shapes.
#include "coeus/base/types.hpp"

#include "support/catch.hpp"

#include <cmath>
#include <limits>
#include <vector>

using namespace coeus;

namespace {

float from_bits(uint32_t bits) {
    return std::bit_cast<float>(bits);
}

constexpr float infinity = std::numeric_limits<float>::infinity();

}  // namespace

TEST_CASE("bfloat16 rounds to nearest, ties to even") {
    CHECK(bf16(1.0f).bits == 0x3f80);
    CHECK(bf16(-2.5f).bits == 0xc020);
    CHECK(bf16(0.0f).bits == 0);
    CHECK(bf16(-0.0f).bits == 0x8000);
    CHECK(bf16(from_bits(0x3f807fff)).bits == 0x3f80);  // just below the tie
    CHECK(bf16(from_bits(0x3f808000)).bits == 0x3f80);  // tie, even below
    CHECK(bf16(from_bits(0x3f818000)).bits == 0x3f82);  // tie, even above
    CHECK(bf16(from_bits(0x3f808001)).bits == 0x3f81);  // just above the tie
    CHECK(bf16(from_bits(0x3fffffff)).bits == 0x4000);  // carries into the exponent
}

TEST_CASE("bfloat16 keeps infinities, NaN and subnormals") {
    CHECK(bf16(infinity).bits == 0x7f80);
    CHECK(bf16(-infinity).bits == 0xff80);
    CHECK(bf16(from_bits(0x7f7fffff)).bits == 0x7f80);  // the largest float rounds to infinity
    CHECK(bf16(from_bits(0x7f7f7fff)).bits == 0x7f7f);
    // a NaN whose payload is only in the dropped half must not become an infinity
    for (uint32_t nan : {0x7f800001u, 0x7fc00000u, 0xff800001u, 0x7fffffffu, 0xffffffffu}) {
        CHECK(std::isnan(float(bf16(from_bits(nan)))));
        CHECK((bf16(from_bits(nan)).bits >> 15) == (nan >> 31));
    }
    CHECK(bf16(from_bits(0x00010000)).bits == 1);
    CHECK(bf16(from_bits(0x00008000)).bits == 0);
    CHECK(bf16(from_bits(0x00018000)).bits == 2);
}

TEST_CASE("every finite bfloat16 survives a round trip through float") {
    std::vector<uint32_t> changed;
    int numbers = 0;
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
        bf16 value;
        value.bits = uint16_t(bits);
        if (std::isnan(float(value))) continue;
        ++numbers;
        if (bf16(float(value)).bits != bits) changed.push_back(bits);
    }
    CHECK(changed == std::vector<uint32_t>{});
    // all but NaN, whose exponent has all bits set and whose fraction is anything but 0
    CHECK(numbers == 0x10000 - 2 * 0x7f);
}

TEST_CASE("half precision rounds to nearest, ties to even") {
    CHECK(to_f16(1.0f).bits == 0x3c00);
    CHECK(to_f16(-2.0f).bits == 0xc000);
    CHECK(to_f16(65504.0f).bits == 0x7bff);
    CHECK(to_f16(65519.996f).bits == 0x7bff);
    CHECK(to_f16(65520.0f).bits == 0x7c00);
    CHECK(to_f16(-infinity).bits == 0xfc00);
    CHECK(to_f16(1.0f + 0x1p-11f).bits == 0x3c00);             // tie, even below
    CHECK(to_f16(1.0f + 0x3p-11f).bits == 0x3c02);             // tie, even above
    CHECK(to_f16(1.0f + 0x1p-11f + 0x1p-20f).bits == 0x3c01);  // just above the tie
    CHECK(to_f16(2.0f - 0x1p-12f).bits == 0x4000);             // carries into the exponent
}

TEST_CASE("half precision has subnormals, signed zeros and NaN") {
    CHECK(to_f16(0x1p-24f).bits == 1);
    CHECK(to_f16(0x1p-25f).bits == 0);           // tie, even below
    CHECK(to_f16(0x1.8p-24f).bits == 2);         // tie, even above
    CHECK(to_f16(0x1.000002p-25f).bits == 1);    // just above the tie
    CHECK(to_f16(0x1p-14f).bits == 0x0400);      // the smallest normal value
    CHECK(to_f16(0x1.ffep-15f).bits == 0x0400);  // rounds up into it
    CHECK(to_f16(-0x1p-30f).bits == 0x8000);
    CHECK(to_f16(std::numeric_limits<float>::quiet_NaN()).bits == 0x7e00);
    CHECK(std::isnan(to_float(f16{0x7c01})));
    CHECK(to_float(f16{0x0001}) == 0x1p-24f);
    CHECK(to_float(f16{0x83ff}) == -0x1.ff8p-15f);
    CHECK(std::signbit(to_float(f16{0x8000})));
}

TEST_CASE("every half value survives a round trip through float") {
    std::vector<uint32_t> changed;
    int numbers = 0;
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
        const f16 value{uint16_t(bits)};
        if (std::isnan(to_float(value))) continue;
        ++numbers;
        if (to_f16(to_float(value)).bits != bits) changed.push_back(bits);
    }
    CHECK(changed == std::vector<uint32_t>{});
    CHECK(numbers == 0x10000 - 2 * 0x3ff);
}

TEST_CASE("element types have sizes and names") {
    CHECK(size_of(Dtype::f64) == 8);
    CHECK(size_of(Dtype::bf16) == 2);
    CHECK(size_of(Dtype::fp8_e4m3) == 1);
    CHECK(size_of(dtype_of<int64_t>()) == 8);
    CHECK(std::string(name_of(Dtype::bf16)) == "bfloat16");
    CHECK(std::string(name_of(dtype_of<float>())) == "float32");
}

TEST_CASE("shapes: extents, rows and columns") {
    const Shape matrix{3, 5}, vector{7}, scalar{}, four{2, 3, 4, 5};
    CHECK(matrix.rank == 2);
    CHECK(matrix.count() == 15);
    CHECK(matrix.rows() == 3);
    CHECK(matrix.cols() == 5);
    CHECK(vector.rows() == 7);
    CHECK(vector.cols() == 1);
    CHECK(scalar.count() == 1);
    CHECK(scalar.rows() == 1);
    CHECK(four.rows() == 24);
    CHECK(four.cols() == 5);
    CHECK(four.text() == "[2, 3, 4, 5]");
    CHECK(scalar.text() == "[]");
    CHECK(Shape{3, 5} == matrix);
    CHECK_FALSE(Shape{5, 3} == matrix);
    CHECK_THROWS_WITH((Shape{1, 2, 3, 4, 5}), Catch::Contains("at most 4"));
}

TEST_CASE("division and rounding up") {
    CHECK(div_ceil(7, 3) == 3);
    CHECK(div_ceil(6, 3) == 2);
    CHECK(div_ceil(0, 3) == 0);
    CHECK(round_up(7, 3) == 9);
    CHECK(round_up(9, 3) == 9);
}
