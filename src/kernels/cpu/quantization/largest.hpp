// SPDX-License-Identifier: Apache-2.0
// The largest magnitudes of elements (Kernels::largest_magnitudes), also while kernels write them.
#pragma once

#include "../../rows/team.hpp"
#include "../../scales.hpp"
#include "../cpu.hpp"

#include <algorithm>
#include <atomic>

namespace coeus::cpu {

using namespace rows;

/// The largest magnitude of n elements.
template <class T>
int32_t largest_of(int64_t n, const T* x) {
    int32_t largest = 0;
#pragma omp simd reduction(max : largest)
    for (int64_t j = 0; j < n; ++j) largest = std::max(largest, magnitude_bits(float(load(x[j]))));
    return largest;
}

/// bits = the larger of both, while other threads do the same.
inline void raise(int32_t& bits, int32_t largest) {
    std::atomic_ref<int32_t> shared(bits);
    int32_t before = shared.load(std::memory_order_relaxed);
    while (before < largest && !shared.compare_exchange_weak(before, largest, std::memory_order_relaxed)) {
    }
}

/// A lane that also finds the largest magnitudes of the rows that it writes: bits[0], and bits[1] for a
/// second row. It reads them from the cache.
class LaneWithLargest : public Lane {
public:
    explicit LaneWithLargest(int32_t* bits) : bits_(bits) {}

    template <class T, class F, class... In>
    void map(int64_t n, T* out, F&& f, const In*... in) const {
        Lane::map(n, out, f, in...);
        raise(bits_[0], largest_of(n, out));
    }
    template <class T, class F, class... In>
    void map_two(int64_t n, T* first, T* second, F&& f, const In*... in) const {
        Lane::map_two(n, first, second, f, in...);
        raise(bits_[0], largest_of(n, first));
        raise(bits_[1], largest_of(n, second));
    }
    template <class C, class F, class In, class T, class... More>
    void update(int64_t n, C* copy, F&& f, const In* in, T* value, More*... more) const {
        Lane::update(n, copy, f, in, value, more...);
        raise(bits_[0], copy ? largest_of(n, copy) : largest_of(n, value));
    }

private:
    int32_t* bits_;
};

/// Finds the largest magnitude of weights that stay, if there is room for it.
inline void find_largest(Exec& exec, const Tensor& weights) {
    const Tensor bits(weights.largest, Dtype::i32, {1});
    if (weights.largest) Cpu::largest_magnitudes(exec, bits, weights, ScaleGroups::one, {});
}

/// Calls f with the lane that writes rows of `out`.
template <class F>
void with_lane(const Tensor& out, F&& f) {
    if (out.largest)
        f(LaneWithLargest(static_cast<int32_t*>(out.largest)));
    else
        f(Lane());
}

}  // namespace coeus::cpu
