// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/random.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/normal_formulas.hpp"

#include <bit>
#include <cmath>

namespace coeus {

double normal_quantile(double p) {
    return normal::quantile(p);
}

double normal_cdf(double x) {
    return 0.5 * std::erfc(-x / std::sqrt(2.0));
}

Permutation::Permutation(uint64_t n, uint64_t seed, uint64_t stream)
    : n_(n), key_{uint32_t(seed), uint32_t(seed >> 32)}, high_{uint32_t(stream), uint32_t(stream >> 32)} {
    require(n > 0, "a permutation needs at least one element");
    const int bits = n <= 2 ? 2 : std::bit_width(n - 1);
    half_bits_ = uint32_t((bits + 1) / 2);
}

uint64_t Permutation::encrypt(uint64_t value) const {
    const uint64_t mask = (uint64_t(1) << half_bits_) - 1;
    uint64_t left = value >> half_bits_, right = value & mask;
    for (uint32_t round = 0; round < 6; ++round) {
        const Philox4 f = philox({uint32_t(right), round, high_[0], high_[1]}, key_);
        const uint64_t next = left ^ (f[0] & mask);
        left = right;
        right = next;
    }
    return (left << half_bits_) | right;
}

uint64_t Permutation::operator()(uint64_t index) const {
    require(index < n_, "permutation index out of range");
    // values outside [0, n) are encrypted again until they fall inside: fewer than four times on average
    do index = encrypt(index);
    while (index >= n_);
    return index;
}

}  // namespace coeus
