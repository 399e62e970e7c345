// SPDX-License-Identifier: Apache-2.0
// Row functions are written for a team of threads that shares a row. On the CPU a team is one thread with its
// vector unit (Lane); on CUDA it is a warp or a block with the same interface (cuda/team.hpp). A team applies
// a function to the columns, or sums it over them. Inputs and outputs are passed as pointers, so that a team
// may move several elements at a time.
#pragma once

#include "../math.hpp"

namespace coeus::rows {

/// Two results of a function.
template <class A>
struct Two {
    A first, second;
};

/// One thread owns the row. The order of its sums depends only on the length.
struct Lane {
    bool first() const { return true; }
    /// Waits until all threads of the team are here; each then sees what the others have written.
    void barrier() const {}
    /// The index of the largest in[j], for n > 0; of equal ones the lowest. If some are NaN, any index.
    template <class T>
    int64_t best(int64_t n, const T* in) const {
        int64_t best = 0;
        for (int64_t j = 1; j < n; ++j)
            if (load(in[j]) > load(in[best])) best = j;
        return best;
    }
    /// Calls f(j) for each column.
    template <class F>
    void each(int64_t n, F&& f) const {
#pragma omp simd
        for (int64_t j = 0; j < n; ++j) f(j);
    }
    /// out[j] = f(in[j]..), converted. The output may be one of the inputs.
    template <class T, class F, class... In>
    void map(int64_t n, T* out, F&& f, const In*... in) const {
#pragma omp simd
        for (int64_t j = 0; j < n; ++j) out[j] = store<T>(f(load(in[j])...));
    }
    /// out[j] = f(j, in[j]..)
    template <class T, class F, class... In>
    void map_at(int64_t n, T* out, F&& f, const In*... in) const {
#pragma omp simd
        for (int64_t j = 0; j < n; ++j) out[j] = store<T>(f(j, load(in[j])...));
    }
    /// Like map, for an f that returns two values.
    template <class T, class F, class... In>
    void map_two(int64_t n, T* first, T* second, F&& f, const In*... in) const {
#pragma omp simd
        for (int64_t j = 0; j < n; ++j) {
            const auto values = f(load(in[j])...);
            first[j] = store<T>(values.first);
            second[j] = store<T>(values.second);
        }
    }
    /// f(first) returns a function g for the elements from `first` on: out[j] = g(j - first), converted.
    template <class T, class F>
    void fill(int64_t n, T* out, F&& f) const {
        const auto g = f(0);
#pragma omp simd
        for (int64_t j = 0; j < n; ++j) out[j] = store<T>(g(j));
    }
    /// f(first) returns a function g for the elements from `first` on: g(j - first, load(in[j]), values[j]..)
    /// changes the values in place. copy[j] = the first of the values, converted; `copy` may be null.
    template <class C, class F, class In, class T, class... More>
    void update(int64_t n, C* copy, F&& f, const In* in, T* value, More*... more) const {
        const auto g = f(0);
        if (copy) {
#pragma omp simd
            for (int64_t j = 0; j < n; ++j) {
                g(j, load(in[j]), value[j], more[j]...);
                copy[j] = store<C>(load(value[j]));
            }
        } else {
#pragma omp simd
            for (int64_t j = 0; j < n; ++j) g(j, load(in[j]), value[j], more[j]...);
        }
    }
    /// Returns the sum of f(in[j]..).
    template <class A, class F, class... In>
    A sum(int64_t n, F&& f, const In*... in) const {
        A total = 0;
#pragma omp simd reduction(+ : total)
        for (int64_t j = 0; j < n; ++j) total += f(load(in[j])...);
        return total;
    }
    /// Returns the sum of f(j).
    template <class A, class F>
    A sum_of(int64_t n, F&& f) const {
        A total = 0;
#pragma omp simd reduction(+ : total)
        for (int64_t j = 0; j < n; ++j) total += f(j);
        return total;
    }
    /// Returns the largest in[j], for n > 0. A NaN may or may not be returned; sums over the row detect it.
    template <class A, class T>
    A largest(int64_t n, const T* in) const {
        A best = load(in[0]);
#pragma omp simd reduction(max : best)
        for (int64_t j = 0; j < n; ++j) best = load(in[j]) > best ? load(in[j]) : best;
        return best;
    }
    /// Returns the largest in[j], for n > 0, and the sum of exp(f (in[j] - largest)), for f > 0. A NaN makes
    /// the sum NaN.
    template <class A, class T>
    Two<A> sum_of_exp(int64_t n, const T* in, A f) const {
        const A largest = this->largest<A>(n, in);
        return {largest, sum<A>(
                             n, [=](A x) { return exp_of(f * (x - largest)); }, in)};
    }
};

}  // namespace coeus::rows
