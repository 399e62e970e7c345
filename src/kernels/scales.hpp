// SPDX-License-Identifier: Apache-2.0
// The scales of groups of 8-bit floats, from the group's largest magnitude as the bits of a float32. torchao
// computes them with log2 and exp2 of float32, which round. Integers say the same here, so that all backends
// agree: a number just below or above a power of two counts as the power if log2f rounds it so.
#pragma once

#include "coeus/base/small_floats.hpp"
#include "coeus/kernels/quantization.hpp"
#include "math.hpp"

namespace coeus::rows {

inline constexpr uint32_t infinity_bits = 0x7f800000U;

/// The magnitude of a number as an integer. Larger magnitudes are larger integers; NaN is the largest.
COEUS_HD inline int32_t magnitude_bits(float x) {
    return int32_t(std::bit_cast<uint32_t>(x) & 0x7fffffffU);
}

/// float32 numbers next to 2^n whose log2f is n, on one side. They are more if |n| is larger, since log2f has
/// fewer places left after its point. `size`: |n|, or |n| - 1 on the side on which the logarithm is nearer to
/// zero.
COEUS_HD inline uint32_t places_to_power(int size) {
    return size < 2 ? 0 : size < 4 ? 1 : size < 8 ? 2 : size < 16 ? 5 : size < 32 ? 11 : size < 64 ? 22 : 44;
}

/// exp2(floor(log2f(s))) for s that is normal or zero; NaN stays.
COEUS_HD inline float round_down_to_power(float s) {
    const uint32_t bits = std::bit_cast<uint32_t>(s), fraction = bits & 0x7fffffU;
    const int above = int(bits >> 23) - 126;  // exponent of the next power
    const bool counts_as_next = 0x800000U - fraction <= places_to_power(above > 0 ? above - 1 : -above);
    const uint32_t power = (bits & infinity_bits) + (counts_as_next ? 0x800000U : 0U);
    return std::bit_cast<float>(bits == 0 || bits >= infinity_bits ? bits : power);
}

/// The factor of a group's elements before they are rounded; the group's scale is 1 / factor. `largest`: the
/// largest number of the format.
COEUS_HD inline float factor_of(int32_t bits, float largest, bool power_of_two) {
    constexpr double least = 1e-12;
    const float magnitude = std::bit_cast<float>(bits);
    // NaN stays. The quotient of two float32 numbers is the same in double, rounded to float32.
    const float s = double(magnitude) < least ? float(double(largest) / least) : largest / magnitude;
    return power_of_two ? round_down_to_power(s) : s;
}

/// The scale (E8M0) of a block, and the factor of its elements. Compilers vectorize its functions.
struct BlockScale {
    uint8_t code;
    float factor;
};

/// By the exponent of the largest magnitude. `exponent`: that of the format's largest number, 8 for E4M3.
COEUS_HD inline BlockScale floor_scale(int32_t bits, int exponent) {
    const bool is_nan = uint32_t(bits) > infinity_bits;
    const int e = (bits >> 23) - 127 - exponent, power = e < -127 ? -127 : e;
    // the factor is 2^-power, at most 2^126
    const uint32_t factor = uint32_t(127 - (power < -126 ? -126 : power)) << 23;
    return {uint8_t(is_nan ? 255 : power + 127), std::bit_cast<float>(is_nan ? 0U : factor)};
}

/// By the quotient of both largest numbers, rounded up. If an element is NaN, so is the factor: all elements
/// become NaN, and not only this one as above.
COEUS_HD inline BlockScale rceil_scale(int32_t bits, float largest) {
    const bool is_nan = uint32_t(bits) > infinity_bits;
    const uint32_t quotient = std::bit_cast<uint32_t>(std::bit_cast<float>(bits) / largest);
    const int n = int(quotient >> 23) - 127;  // -127: below the normal numbers, in units of 2^-149
    const uint32_t counts_as_power = n == -127 ? 0x400000U : places_to_power((n < 0 ? -n - 1 : n) / 2);
    const int up = n + ((quotient & 0x7fffffU) > counts_as_power ? 1 : 0), power = up > 127 ? 127 : up;
    // the factor is 2^-power, but 1 for the least power
    const uint32_t factor = power == 127    ? 0x400000U
                            : power == -127 ? 0x3f800000U
                                            : uint32_t(127 - power) << 23;
    return {uint8_t(is_nan ? 255 : power + 127), std::bit_cast<float>(is_nan ? 0x7fc00000U : factor)};
}

template <class Format>
COEUS_HD BlockScale block_scale(int32_t bits, ScaleRule rule) {
    constexpr int exponent = Format::fraction == 3 ? 8 : 15;
    return rule == ScaleRule::mx_floor ? floor_scale(bits, exponent) : rceil_scale(bits, Format::largest);
}

/// The code of x factor. Its sign is that of x, also if the product is NaN, whose sign depends on the
/// processor.
template <class Format>
COEUS_HD uint8_t scaled_code(float x, float factor) {
    return uint8_t((encode<Format>(x * factor) & 127U) | (std::bit_cast<uint32_t>(x) >> 24 & 128U));
}

/// Its value.
template <class Format>
COEUS_HD float scaled_value(float x, float factor) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(rounded<Format>(x * factor)) & 0x7fffffffU;
    return std::bit_cast<float>(magnitude | (std::bit_cast<uint32_t>(x) & 0x80000000U));
}

/// Checks what quantize_transposed gets. True if columns of x have scales of their own.
inline bool check_transposed(const Tensor& transposed, const Tensor& q, const Tensor& x) {
    const bool of_columns = transposed.groups == ScaleGroups::rows;
    require(of_columns || transposed.groups == ScaleGroups::one,
            "quantize_transposed: the result has one scale, or one for each row");
    require(!q || !of_columns, "quantize_transposed: codes of rows and of columns have different scales");
    require(transposed.rows() == x.cols() && transposed.cols() == x.rows() &&
                (!q || (q.rows() == x.rows() && q.cols() == x.cols())),
            "quantize_transposed: shapes do not fit");
    return of_columns;
}

/// Calls f with the format of a type of 8-bit floats.
template <class F>
void with_format(Dtype type, F&& f) {
    if (type == Dtype::fp8_e4m3) return f(E4m3());
    require(type == Dtype::fp8_e5m2, "a kernel for 8-bit floats got another type");
    f(E5m2());
}

}  // namespace coeus::rows
