// SPDX-License-Identifier: Apache-2.0
// The largest magnitudes of what kernels write (Tensor::largest). They are integers, which atomics can take
// in any order.
#pragma once

#include "../scales.hpp"
#include "team.hpp"

namespace coeus::cuda {

/// bits = the larger of it and the values of a block's threads, which all make this call. Needs
/// BlockTeam::shared_bytes.
__device__ inline void raise(int32_t* bits, int32_t value) {
    const BlockTeam block(shared_memory());
    const int32_t largest = block.largest_of_threads(value);
    // most blocks find that another one had a larger value, and need no atomic
    if (block.first() && largest > *static_cast<volatile int32_t*>(bits)) atomicMax(bits, largest);
}

/// A team that also finds the largest magnitudes of what it writes.
template <class Team>
class WithLargest : public Team {
public:
    using Team::Team;

    template <class T, class F, class... In>
    __device__ void map(int64_t n, T* out, F&& f, const In*... in) const {
        Team::map(
            n, out, [&](auto... values) { return noted<T>(largest_.first, f(values...)); }, in...);
    }
    template <class T, class F, class... In>
    __device__ void map_two(int64_t n, T* first, T* second, F&& f, const In*... in) const {
        Team::map_two(
            n, first, second,
            [&](auto... values) {
                const auto both = f(values...);
                noted<T>(largest_.first, both.first);
                noted<T>(largest_.second, both.second);
                return both;
            },
            in...);
    }
    /// What this thread has found.
    __device__ Two<int32_t> largest_written() const { return largest_; }

private:
    template <class T, class A>
    __device__ static A noted(int32_t& largest, A value) {
        const int32_t bits = magnitude_bits(load(store<T>(value)));
        largest = bits > largest ? bits : largest;
        return value;
    }

    mutable Two<int32_t> largest_ = {};
};

/// The team of a kernel that finds the largest magnitudes, or not.
template <class Team, bool with_largest>
using MaybeWithLargest = std::conditional_t<with_largest, WithLargest<Team>, Team>;

/// Shared memory in bytes for raise().
template <bool with_largest>
constexpr size_t bytes_for = with_largest ? BlockTeam::shared_bytes : 0;

/// Calls f<with_largest>(bits) for a result.
template <class F>
void with_largest_of(const Tensor& result, F&& f) {
    auto* const bits = static_cast<int32_t*>(result.largest);
    if (bits)
        f.template operator()<true>(bits);
    else
        f.template operator()<false>(bits);
}

}  // namespace coeus::cuda
