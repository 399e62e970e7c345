// SPDX-License-Identifier: Apache-2.0
// Values of the number formats of 8 and 4 bits in which weights are stored, and of the scales of their
// blocks. Source: OCP Microscaling Formats (MX) Specification 1.0, section 5.3; OCP 8-bit Floating Point
// Specification 1.0. Every value is exact in float32.
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

/// FP8 E4M3 (e4m3fn): sign, 4 bits of exponent (bias 7), 3 bits of fraction. 0x7f and 0xff are NaN; there is
/// no infinity.
constexpr float e4m3_value(uint8_t code) {
    const uint32_t magnitude = code & 127U;
    if (magnitude == 127) return std::numeric_limits<float>::quiet_NaN();
    // subnormal numbers are multiples of 2^-9
    const float value =
        magnitude < 8 ? float(magnitude) * 0x1p-9F : std::bit_cast<float>((magnitude << 20) + (120U << 23));
    return code < 128 ? value : -value;
}

/// E8M0, the scale of a block: 2^(code - 127); 255 is NaN.
constexpr float e8m0_value(uint8_t code) {
    if (code == 255) return std::numeric_limits<float>::quiet_NaN();
    return std::bit_cast<float>(code > 0 ? uint32_t(code) << 23 : 1U << 22);  // 2^-127 is subnormal
}

}  // namespace coeus
