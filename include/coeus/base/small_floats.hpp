// SPDX-License-Identifier: Apache-2.0
// The number formats of 8 and 4 bits in which weights are stored and matrices are multiplied, and the scales
// of their blocks. Source: OCP Microscaling Formats (MX) Specification 1.0, section 5.3; OCP 8-bit Floating
// Point Specification 1.0. Every value is exact in float32.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>

namespace coeus {

/// FP4 E2M1: sign, 2 bits of exponent (bias 1), 1 bit of fraction. The upper four bits of `code` do not
/// count.
constexpr float e2m1_value(uint8_t code) {
    constexpr std::array<float, 16> values = {0.F,  0.5F,  1.F,  1.5F,  2.F,  3.F,  4.F,  6.F,
                                              -0.F, -0.5F, -1.F, -1.5F, -2.F, -3.F, -4.F, -6.F};
    return values[code & 15];
}

/// FP8 E4M3 (e4m3fn): sign, 4 bits of exponent, 3 bits of fraction. 0x7f and 0xff are NaN; there is no
/// infinity.
struct E4m3 {
    static constexpr int fraction = 3, bias = 7;
    static constexpr float largest = 448;
    static constexpr uint8_t largest_code = 0x7e, first_not_finite = 0x7f;
};
/// FP8 E5M2: sign, 5 bits of exponent, 2 bits of fraction, with infinity and NaN as in IEEE 754.
struct E5m2 {
    static constexpr int fraction = 2, bias = 15;
    static constexpr float largest = 57344;
    static constexpr uint8_t largest_code = 0x7b, first_not_finite = 0x7c;
};

/// The value of a code. Compilers vectorize it. No float in between is subnormal: those would be slow on some
/// processors, and zero on some others.
template <class Format>
constexpr float decode(uint8_t code) {
    const uint32_t magnitude = code & 127U, shifted = magnitude << (23 - Format::fraction);
    // The code as a float32, with another bias. It is too large for subnormal codes, whose first bit is
    // not 1.
    const float normal = std::bit_cast<float>(shifted + (uint32_t(127 - Format::bias) << 23));
    const float subnormal = 2 * normal - std::bit_cast<float>(uint32_t(128 - Format::bias) << 23);
    const uint32_t finite = std::bit_cast<uint32_t>(subnormal < normal ? subnormal : normal);
    const uint32_t value = magnitude >= Format::first_not_finite ? shifted | 0x7f800000U : finite;
    return std::bit_cast<float>(value | (code & 128U) << 24);
}
constexpr float e4m3_value(uint8_t code) {
    return decode<E4m3>(code);
}
constexpr float e5m2_value(uint8_t code) {
    return decode<E5m2>(code);
}

/// The code of a number: numbers outside the range become the largest one, others are rounded to the nearest
/// code, ties to even. NaN and -0 keep their signs. Compilers vectorize it: no condition follows from
/// another, and the last shift keeps them from converting every step to 8 bits.
template <class Format>
constexpr uint8_t encode(float x) {
    constexpr int dropped = 23 - Format::fraction;
    constexpr uint32_t least_normal = uint32_t(128 - Format::bias) << 23, largest = Format::largest_code;
    const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & 0x7fffffffU,
                   exponent = (magnitude > least_normal ? magnitude : least_normal) & 0x7f800000U;
    // The last place of `rounding` is that of a code with this exponent, so the addition rounds to codes. If
    // the exponent is too large for it, the code is too large as well.
    const uint32_t rounding = exponent + (uint32_t(dropped) << 23);
    const float rounded = std::bit_cast<float>(magnitude) + std::bit_cast<float>(rounding);
    const uint32_t code =
        std::bit_cast<uint32_t>(rounded) - rounding + ((exponent - least_normal) >> dropped);
    const uint32_t finite = code < largest ? code : largest, value = x != x ? 0x7fU : finite;
    return uint8_t((value << 24 | (bits & 0x80000000U)) >> 24);
}

/// decode(encode(x)), without the code.
template <class Format>
constexpr float rounded(float x) {
    constexpr uint32_t dropped = 23 - Format::fraction, least_normal = uint32_t(128 - Format::bias) << 23,
                       largest = std::bit_cast<uint32_t>(Format::largest),
                       nan = 0x7fU << (23 - Format::fraction) | 0x7f800000U;
    const uint32_t bits = std::bit_cast<uint32_t>(x), any = bits & 0x7fffffffU,
                   magnitude = any < largest ? any : largest,
                   exponent = (magnitude > least_normal ? magnitude : least_normal) & 0x7f800000U;
    const float rounding = std::bit_cast<float>(exponent + (dropped << 23));
    const float number = (std::bit_cast<float>(magnitude) + rounding) - rounding;
    const uint32_t value = x != x ? nan : std::bit_cast<uint32_t>(number);
    return std::bit_cast<float>(value | (bits & 0x80000000U));
}

/// E8M0, the scale of a block: 2^(code - 127); 255 is NaN.
constexpr float e8m0_value(uint8_t code) {
    if (code == 255) return std::numeric_limits<float>::quiet_NaN();
    return std::bit_cast<float>(code > 0 ? uint32_t(code) << 23 : 1U << 22);  // 2^-127 is subnormal
}

}  // namespace coeus
