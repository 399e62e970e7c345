// SPDX-License-Identifier: Apache-2.0
// Products of 8-bit floats on GPUs whose mma has none (sm_90, sm_100): codes become half precision, in which
// they are exact. The compiler would do the same for multiply_add_e4m3, but adds each of its sums once more.
#pragma once

#include "mma.hpp"
#include "mma_of_8_bits.hpp"

namespace coeus::cuda {

/// has_fast_mma_of_8_bits() of the code that this is.
__device__ inline bool mma_has_8_bits() {
#if defined(__CUDA_ARCH__)
    return has_fast_mma_of_8_bits(__CUDA_ARCH__ / 10);
#elif defined(__CUDACC__)
    return true;
#else
    return has_fast_mma_of_8_bits(emulation::architecture);
#endif
}

/// Two E4M3 codes of a part, the lower or the upper ones. The emulation has them in bfloat16, in which they
/// are exact as well.
__device__ inline uint32_t halves_of(uint32_t codes, bool upper) {
#ifdef __CUDACC__
    uint32_t halves;
    if (upper)
        asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, high;}"
            : "=r"(halves)
            : "r"(codes));
    else
        asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, low;}"
            : "=r"(halves)
            : "r"(codes));
    return halves;
#else
    const uint32_t pair = upper ? codes >> 16 : codes;
    return pair_of(e4m3_value(uint8_t(pair)), e4m3_value(uint8_t(pair >> 8)));
#endif
}
/// sums[16x8] += a[16x16] b[16x8] in half precision, with elements as in multiply_add.
__device__ inline void multiply_add_halves(Sums& sums, const Fragment& a, uint32_t first, uint32_t second) {
#ifdef __CUDACC__
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums.values[0]), "+f"(sums.values[1]), "+f"(sums.values[2]), "+f"(sums.values[3])
        : "r"(a.parts[0]), "r"(a.parts[1]), "r"(a.parts[2]), "r"(a.parts[3]), "r"(first), "r"(second));
#else
    emulation::multiply_add(sums.values, a.parts, first, second);
#endif
}

/// As multiply_add_e4m3. A part has four codes of the depth: two for each of two products.
__device__ inline void multiply_add_as_halves(Sums& sums, const Fragment& a, uint32_t first,
                                              uint32_t second) {
    COEUS_UNROLL
    for (int pair = 0; pair < 2; ++pair) {
        const bool upper = pair == 1;
        const Fragment left = {{halves_of(a.parts[0], upper), halves_of(a.parts[1], upper),
                                halves_of(a.parts[2], upper), halves_of(a.parts[3], upper)}};
        multiply_add_halves(sums, left, halves_of(first, upper), halves_of(second, upper));
    }
}

}  // namespace coeus::cuda
