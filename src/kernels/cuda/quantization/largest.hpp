// SPDX-License-Identifier: Apache-2.0
// The largest magnitudes of what kernels write (Tensor::largest). They are integers, which atomics can take
// in any order.
#pragma once

#include "../../scales.hpp"
#include "../rows/team.hpp"

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
    __device__ void map(int64_t n, T* out, F&& f, const In&... in) const {
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
    template <class C, class F, class In, class T, class... More>
    __device__ void update(int64_t n, C* copy, F&& f, const In* in, T* value, More*... more) const {
        const auto change = [&](int64_t first, auto together) {
            return [&, g = f(first, together)](int64_t j, Acc<In> input, T& changed, auto&... others) {
                g(j, input, changed, others...);
                if (copy)
                    noted<C>(largest_.first, load(changed));
                else
                    noted<T>(largest_.first, load(changed));
            };
        };
        Team::update(n, copy, change, in, value, more...);
    }
    /// Only finds the largest magnitude of elements.
    template <class T>
    __device__ void read(int64_t n, const T* elements) const {
        Team::each(n, [&](int64_t j) { noted<T>(largest_.first, load(elements[j])); });
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

/// The threads of the whole grid.
template <bool with_largest, class Team = Threads>
__device__ MaybeWithLargest<Team, with_largest> whole_grid() {
    return {int64_t(blockIdx.x) * blockDim.x + threadIdx.x, int64_t(gridDim.x) * blockDim.x};
}

/// Shared memory in bytes for raise().
template <bool with_largest>
constexpr size_t bytes_for = with_largest ? BlockTeam::shared_bytes : 0;

/// Raises bits for weights that stay: those in `compute` if it is not null.
template <class Team, class T, class C>
__device__ void raise_for_weights(const Team& team, int32_t* bits, int64_t count, const T* master,
                                  const C* compute) {
    if (compute)
        team.read(count, compute);
    else
        team.read(count, master);
    raise(bits, team.largest_written().first);
}

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
