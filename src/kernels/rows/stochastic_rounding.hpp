// SPDX-License-Identifier: Apache-2.0
// Stochastic rounding of weights and moments to bf16. Its random bits depend only on (seed, stream, step,
// global index). updates/random_bits.hpp of each backend draws them for many elements.
#pragma once

#include "../math.hpp"
#include "coeus/base/random.hpp"

namespace coeus::rows {

/// Rounds a float to one of its two bf16 neighbours; the probability of rounding up makes the expectation
/// exact. `bits`: 16 random bits. NaN and infinity are kept.
COEUS_HD inline bf16 round_stochastically(float x, uint32_t bits) {
    const uint32_t u = std::bit_cast<uint32_t>(x);
    bf16 result;
    const bool finite = std::fabs(x) <= std::numeric_limits<float>::max();
    result.bits = finite ? uint16_t((u + (bits & 0xffffu)) >> 16) : bf16::round(x);
    return result;
}

/// The random numbers of one step for one parameter.
COEUS_HD inline RandomStream rounding_stream(uint64_t seed, const ElementPlace& place, uint64_t step) {
    return RandomStream(seed, place.stream ^ (step * 0x9E3779B97F4A7C15u));
}

}  // namespace coeus::rows
