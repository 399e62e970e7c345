// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/types.hpp"

#include <cmath>

namespace coeus {

const char* name_of(Dtype t) {
    switch (t) {
        case Dtype::f64: return "float64";
        case Dtype::f32: return "float32";
        case Dtype::f16: return "float16";
        case Dtype::bf16: return "bfloat16";
        case Dtype::fp8_e4m3: return "float8_e4m3";
        case Dtype::fp8_e5m2: return "float8_e5m2";
        case Dtype::i32: return "int32";
        case Dtype::i64: return "int64";
        case Dtype::u8: return "uint8";
    }
    return "unknown";
}

float to_float(f16 value) {
    const uint32_t sign = uint32_t(value.bits & 0x8000u) << 16;
    const uint32_t exponent = (value.bits >> 10) & 31u;
    const uint32_t mantissa = value.bits & 0x3ffu;
    if (exponent == 0) return std::copysign(std::ldexp(float(mantissa), -24), std::bit_cast<float>(sign));
    if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

f16 to_f16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const uint16_t sign = uint16_t((u >> 16) & 0x8000u);
    const float magnitude = std::fabs(value);
    if (std::isnan(value)) return {uint16_t(sign | 0x7e00)};
    if (magnitude >= 65520.f) return {uint16_t(sign | 0x7c00)};
    if (magnitude < 0x1p-14f) return {uint16_t(sign | uint16_t(std::nearbyint(std::ldexp(magnitude, 24))))};
    const uint32_t m = std::bit_cast<uint32_t>(magnitude);
    return {uint16_t(sign | ((m + 0xfffu + ((m >> 13) & 1) - (112u << 23)) >> 13))};
}

std::string Shape::text() const {
    std::string s = "[";
    for (int i = 0; i < rank; ++i) s += fmt::format("{}{}", i ? ", " : "", d[size_t(i)]);
    return s + "]";
}

}  // namespace coeus
