// SPDX-License-Identifier: Apache-2.0
// A row function is written for a team that shares the row: on the CPU one thread with its vector unit
// (Lane), on CUDA a warp or a block of the same interface. A team runs a function over the columns, or sums
// it up.
#pragma once

#include "coeus/kernels/math.hpp"

namespace coeus {

/// One thread owns the row. The order of its sums depends on nothing but the length.
struct Lane {
    /// f(j) for each column.
    template <class F>
    void each(int64_t n, F&& f) const {
#pragma omp simd
        for (int64_t j = 0; j < n; ++j) f(j);
    }
    /// Sum of f(j).
    template <class A, class F>
    A sum(int64_t n, F&& f) const {
        A total = 0;
#pragma omp simd reduction(+ : total)
        for (int64_t j = 0; j < n; ++j) total += f(j);
        return total;
    }
    /// The largest f(j), n > 0. A NaN may or may not win; sums over the row show it.
    template <class A, class F>
    A largest(int64_t n, F&& f) const {
        A best = f(0);
#pragma omp simd reduction(max : best)
        for (int64_t j = 0; j < n; ++j) best = f(j) > best ? f(j) : best;
        return best;
    }
};

}  // namespace coeus
