// SPDX-License-Identifier: Apache-2.0
// Element types, shapes, and conversions of the 16-bit float formats on the host.
#pragma once

#include "coeus/base/error.hpp"

#include <array>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

namespace coeus {

enum class Dtype : uint8_t { f64, f32, f16, bf16, fp8_e4m3, fp8_e5m2, i32, i64, u8 };

/// Bytes of one element.
constexpr int64_t size_of(Dtype t) {
    switch (t) {
        case Dtype::f64:
        case Dtype::i64: return 8;
        case Dtype::f32:
        case Dtype::i32: return 4;
        case Dtype::f16:
        case Dtype::bf16: return 2;
        case Dtype::fp8_e4m3:
        case Dtype::fp8_e5m2:
        case Dtype::u8: return 1;
    }
    return 0;
}

/// "float32", "bfloat16", ...: the names that decks and files use.
const char* name_of(Dtype t);

/// bfloat16: the upper half of a float32. Conversion rounds to nearest even; NaN stays NaN.
struct bf16 {
    uint16_t bits = 0;

    bf16() = default;
    explicit constexpr bf16(float value) : bits(round(value)) {}
    explicit constexpr operator float() const { return std::bit_cast<float>(uint32_t(bits) << 16); }

    static constexpr uint16_t round(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
        if (!std::is_constant_evaluated()) {  // one instruction; all NaN become 0x7fff
            uint16_t rounded;
            asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(value));
            return rounded;
        }
#endif
        const uint32_t u = std::bit_cast<uint32_t>(value);
        if ((u & 0x7fffffffu) > 0x7f800000u) return uint16_t((u >> 16) | 0x40);  // keep NaN quiet
        return uint16_t((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
    }
};
static_assert(sizeof(bf16) == 2);

/// IEEE half precision. Only read from and written to files.
struct f16 {
    uint16_t bits = 0;
};
float to_float(f16 value);
f16 to_f16(float value);

/// The Dtype of a C++ element type.
template <class T>
constexpr Dtype dtype_of();
template <>
constexpr Dtype dtype_of<double>() {
    return Dtype::f64;
}
template <>
constexpr Dtype dtype_of<float>() {
    return Dtype::f32;
}
template <>
constexpr Dtype dtype_of<bf16>() {
    return Dtype::bf16;
}
template <>
constexpr Dtype dtype_of<f16>() {
    return Dtype::f16;
}
template <>
constexpr Dtype dtype_of<int32_t>() {
    return Dtype::i32;
}
template <>
constexpr Dtype dtype_of<int64_t>() {
    return Dtype::i64;
}
template <>
constexpr Dtype dtype_of<uint8_t>() {
    return Dtype::u8;
}

/// Up to four extents. They are int64, so that products do not overflow.
struct Shape {
    std::array<int64_t, 4> d = {};
    int rank = 0;

    Shape() = default;
    Shape(std::initializer_list<int64_t> extents) {
        require(extents.size() <= 4, "a shape has at most 4 extents");
        for (int64_t e : extents) d[size_t(rank++)] = e;
    }
    int64_t operator[](int i) const { return d[size_t(i)]; }
    int64_t& operator[](int i) { return d[size_t(i)]; }
    int64_t count() const {
        int64_t n = 1;
        for (int i = 0; i < rank; ++i) n *= d[size_t(i)];
        return n;
    }
    /// Number of rows of the tensor seen as a matrix, which is what FSDP shards: the product of all extents
    /// but the last; for a vector, its length.
    int64_t rows() const {
        int64_t n = rank == 1 ? d[0] : 1;
        for (int i = 0; i + 1 < rank; ++i) n *= d[size_t(i)];
        return n;
    }
    /// The last extent; 1 for a vector, whose elements are its rows.
    int64_t cols() const { return rank < 2 ? 1 : d[size_t(rank - 1)]; }
    bool operator==(const Shape&) const = default;
    /// "[2048, 256]"
    std::string text() const;
};

constexpr int64_t div_ceil(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}
constexpr int64_t round_up(int64_t a, int64_t b) {
    return div_ceil(a, b) * b;
}

}  // namespace coeus
