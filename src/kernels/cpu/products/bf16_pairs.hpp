// SPDX-License-Identifier: Apache-2.0
// Pairs of bfloat16 in 32-bit words. Processors with dot products of such pairs multiply them at twice the
// rate of float: AVX-512 BF16 (vdpbf16ps), and BF16 of Armv8.6 (bfdot). workspace::attention_depth() tells
// whether the build has them.
#pragma once

#include <cstdint>

#if defined(__AVX512BF16__)
#include <immintrin.h>
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#include <arm_neon.h>
#endif

namespace coeus::cpu {

#if defined(__AVX512BF16__)

/// sum[i] + first of left * first of right[i] + second of left * second of right[i].
template <class V, class R>
[[gnu::always_inline]] inline V add_pair_products(V sum, uint32_t left, R right) {
    return V(_mm512_dpbf16_ps(__m512(sum), __m512bh(_mm512_set1_epi32(int(left))), __m512bh(right)));
}

/// Rounds adjacent values and stores them as half as many words.
template <class V>
[[gnu::always_inline]] inline void store_pairs(uint32_t* to, V values) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), __m256i(_mm512_cvtneps_pbh(__m512(values))));
}

/// Rounds and stores the words (`first`[i], `second`[i]).
template <class V>
[[gnu::always_inline]] inline void store_pairs(uint32_t* to, V first, V second) {
    alignas(64) static constexpr uint16_t in_turns[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                          21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                          11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __m512i both = __m512i(_mm512_cvtne2ps_pbh(__m512(second), __m512(first)));
    _mm512_store_si512(to, _mm512_permutexvar_epi16(_mm512_load_si512(in_turns), both));
}

#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)

template <class V, class R>
[[gnu::always_inline]] inline V add_pair_products(V sum, uint32_t left, R right) {
    return V(vbfdotq_f32(float32x4_t(sum), vreinterpretq_bf16_u32(vdupq_n_u32(left)),
                         vreinterpretq_bf16_u32(uint32x4_t(right))));
}

template <class V>
[[gnu::always_inline]] inline void store_pairs(uint32_t* to, V values) {
    vst1_u32(to, vreinterpret_u32_bf16(vcvt_bf16_f32(float32x4_t(values))));
}

template <class V>
[[gnu::always_inline]] inline void store_pairs(uint32_t* to, V first, V second) {
    const uint16x4_t low = vreinterpret_u16_bf16(vcvt_bf16_f32(float32x4_t(first))),
                     high = vreinterpret_u16_bf16(vcvt_bf16_f32(float32x4_t(second)));
    vst1q_u32(to, vorrq_u32(vmovl_u16(low), vshll_n_u16(high, 16)));
}

#endif

}  // namespace coeus::cpu
