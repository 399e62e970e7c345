// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers. Every value is a function of the seed, its purpose and its global index, so
// that any mesh and any backend draw the same value. Generator: Philox4x32-10 (Salmon et al., Parallel Random
// Numbers: As Easy as 1, 2, 3, SC 2011, section 3.3).
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string_view>

namespace coeus {

using Philox4 = std::array<uint32_t, 4>;

/// Ten rounds of Philox4x32: 128 random bits from a 128-bit counter and a 64-bit key.
constexpr Philox4 philox(Philox4 counter, std::array<uint32_t, 2> key) {
    for (int round = 0; round < 10; ++round) {
        const uint64_t a = uint64_t(0xD2511F53u) * counter[0];
        const uint64_t b = uint64_t(0xCD9E8D57u) * counter[2];
        counter = {uint32_t(b >> 32) ^ counter[1] ^ key[0], uint32_t(b),
                   uint32_t(a >> 32) ^ counter[3] ^ key[1], uint32_t(a)};
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
    return counter;
}

/// 64-bit FNV-1a hash of a name: the number of the stream from which a parameter's values are drawn.
constexpr uint64_t stream_of(std::string_view name) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (char c : name) hash = (hash ^ uint8_t(c)) * 0x100000001b3u;
    return hash;
}

/// Uniform in the open interval (0, 1), from the upper 53 of 64 random bits: an odd multiple of 2^-54; above
/// 1/2 it is rounded to a double, and the last one to 1 - 2^-53. The conversion to double vectorizes on every
/// processor.
constexpr double uniform_of(uint64_t bits) {
    const auto double_of = [](uint64_t x) { return std::bit_cast<double>(x | 0x4330000000000000u) - 0x1p52; };
    const double u = (double_of(bits >> 32) * 0x1p21 + double_of(bits >> 11 & 0x1fffff) + 0.5) * 0x1p-53;
    return u < 1 ? u : 1 - 0x1p-53;
}

/// A stream of random numbers that are addressed by index.
class RandomStream {
public:
    /// `stream` separates the uses of one seed: a parameter's name, "shuffle", "sample".
    constexpr RandomStream(uint64_t seed, uint64_t stream)
        : key_{uint32_t(seed), uint32_t(seed >> 32)}, high_{uint32_t(stream), uint32_t(stream >> 32)} {}
    constexpr RandomStream(uint64_t seed, std::string_view stream) : RandomStream(seed, stream_of(stream)) {}

    constexpr Philox4 bits(uint64_t block) const {
        return philox({uint32_t(block), uint32_t(block >> 32), high_[0], high_[1]}, key_);
    }
    /// 64 random bits for element `index` (two elements share a Philox block).
    constexpr uint64_t u64(uint64_t index) const {
        const Philox4 b = bits(index / 2);
        const size_t half = (index & 1) * 2;
        return (uint64_t(b[half + 1]) << 32) | b[half];
    }
    /// Uniform in the open interval (0, 1), with 53 bits.
    constexpr double uniform(uint64_t index) const { return uniform_of(u64(index)); }

private:
    std::array<uint32_t, 2> key_, high_;
};

/// Inverse of the standard normal distribution function, for p in (0, 1). Relative error about 1e-16. The
/// same bits on every processor.
double normal_quantile(double p);
/// The standard normal distribution function.
double normal_cdf(double x);

/// A permutation of [0, n), evaluated index by index without a list of n elements: a Feistel network over
/// Philox with cycle walking.
class Permutation {
public:
    Permutation(uint64_t n, uint64_t seed, uint64_t stream);
    uint64_t operator()(uint64_t index) const;

private:
    uint64_t encrypt(uint64_t value) const;
    uint64_t n_;
    uint32_t half_bits_;
    std::array<uint32_t, 2> key_, high_;
};

}  // namespace coeus
