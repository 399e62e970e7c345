// SPDX-License-Identifier: Apache-2.0
// Rows of numbers that are rounded to 8 bits, also while kernels write them (Tensor::rounded).
#pragma once

#include "largest.hpp"

#include <bit>
#include <type_traits>

namespace coeus::cpu {

/// A number that T has, so that it need not be rounded.
template <class T, class A>
T store_exact(A x) {
    if constexpr (std::is_same_v<T, bf16>) {
        bf16 y;
        y.bits = uint16_t(std::bit_cast<uint32_t>(x) >> 16);
        return y;
    } else {
        return T(x);
    }
}

/// The code of x factor, or its value times a scale that is a power of two.
template <class Format>
void put(uint8_t& q, float x, float factor, float) {
    q = scaled_code<Format>(x, factor);
}
template <class Format>
void put(bf16& y, float x, float factor, float scale) {
    y = store_exact<bf16>(scaled_value<Format>(x, factor) * scale);
}

template <class Format, class T, class Q>
void put_row(int64_t n, Q* q, const T* x, float factor, float scale) {
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) put<Format>(q[j], float(load(x[j])), factor, scale);
}

/// With a factor and a scale for each column. Inlined in some of its callers, GCC would not vectorize it.
template <class Format, class T>
[[gnu::noinline]] void put_row(int64_t n, uint8_t* q, const T* x, const float* factors, const float*) {
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) put<Format>(q[j], float(load(x[j])), factors[j], 1);
}
template <class Format, class T>
[[gnu::noinline]] void put_row(int64_t n, bf16* y, const T* x, const float* factors, const float* scales) {
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) put<Format>(y[j], float(load(x[j])), factors[j], scales[j]);
}

/// Rounds row i of y, which has just been written, if there is room for that.
template <class T>
void round_row(const Tensor& y, int64_t i) {
    if (!y.rounded) return;
    const int64_t n = y.cols();
    const T* const row = y.row<const T>(i);
    const float factor = factor_of(largest_of(n, row), E4m3::largest, true);
    if (y.rounded_scale) {
        static_cast<float*>(y.rounded_scale)[i] = 1 / factor;
        put_row<E4m3>(n, static_cast<uint8_t*>(y.rounded) + i * n, row, factor, 1.0F);
    } else {
        put_row<E4m3>(n, static_cast<bf16*>(y.rounded) + i * n, row, factor, 1 / factor);
    }
}

}  // namespace coeus::cpu
