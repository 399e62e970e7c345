// SPDX-License-Identifier: Apache-2.0
// Sums in double over fixed blocks, whose results are added in order; and the clipping factor from the
// gradient's norm.
#include "../../math.hpp"
#include "../cpu.hpp"
#include "../workspace.hpp"

#include <cmath>

namespace coeus::cpu {

namespace {

// Sums f(j) in many lanes, since in a single chain each addition would wait for the one before. The order of
// the lanes is fixed.
template <class F>
double sum_in_lanes(int64_t n, F&& f) {
    constexpr int64_t count = 32;
    double lanes[count] = {};
    int64_t j = 0;
    for (; j + count <= n; j += count)
#pragma omp simd
        for (int64_t lane = 0; lane < count; ++lane) lanes[lane] += f(j + lane);
    double total = 0;
    for (; j < n; ++j) total += f(j);
    for (const double lane : lanes) total += lane;
    return total;
}

template <class F>
void reduce(Exec& exec, double* out, Tensor a, F&& f) {
    Scope scope(exec.workspace);
    // blocks of a dense tensor, or the rows of another
    const int64_t size = a.dense() ? workspace::sum_block : a.cols();
    const int64_t distance = a.dense() ? workspace::sum_block : a.ld;
    const int64_t blocks = a.dense() ? div_ceil(a.count(), size) : a.rows();
    double* partial = exec.workspace.alloc(Dtype::f64, {blocks}).as<double>();
    dispatch(a.dtype, [&]<class T>(T) {
        const T* data = a.as<const T>();
        parallel_blocks(exec, blocks, rows_per_block(size), [&](int64_t, int64_t first, int64_t last) {
            for (int64_t i = first; i < last; ++i) {
                const T* x = data + i * distance;
                const int64_t n = std::min(size, a.count() - i * size);
                partial[i] = sum_in_lanes(n, [=](int64_t j) { return f(double(load(x[j]))); });
            }
        });
    });
    double total = 0;
    for (int64_t i = 0; i < blocks; ++i) total += partial[i];
    *out += total;
}

}  // namespace

void Cpu::sum(Exec& exec, double* out, Tensor a) {
    reduce(exec, out, a, [](double x) { return x; });
}

void Cpu::sum_of_squares(Exec& exec, double* out, Tensor a) {
    reduce(exec, out, a, [](double x) { return x * x; });
}

void Cpu::finish_norm(Exec&, StepScalars& scalars, double max_norm) {
    rows::finish_norm(scalars, max_norm);
}

}  // namespace coeus::cpu
