// SPDX-License-Identifier: Apache-2.0
// Access to single elements, for kernels by their definitions.
#pragma once

#include "coeus/kernels/kernels.hpp"

#include <cmath>
#include <numbers>

namespace coeus::test {

inline double at(const Tensor& t, int64_t i, int64_t j) {
    return element(t, i * t.cols() + j);
}
inline void set(const Tensor& t, int64_t i, int64_t j, double value) {
    set_element(t, i * t.cols() + j, value);
}
inline double at(const Operand& o, int64_t i, int64_t j) {
    return o.is_transposed ? at(o.tensor, j, i) : at(o.tensor, i, j);
}
inline int64_t index_at(const Tensor& t, int64_t i) {
    return int64_t(element(t, i));
}
/// Calls f(row, group, is padding) for all rows of all groups.
template <class F>
void for_rows(const Groups& groups, const F& f) {
    for (int64_t g = 0; g < groups.number(); ++g)
        for (int64_t i = 0; i < round_up(index_at(groups.counts, g), group_rows); ++i)
            f(index_at(groups.begins, g) + i, g, i >= index_at(groups.counts, g));
}

inline double sigmoid(double x) {
    return 1 / (1 + std::exp(-x));
}
inline double gelu(double x) {
    return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}
inline double gelu_slope(double x) {
    const double root = std::sqrt(2 / std::numbers::pi), t = std::tanh(root * (x + 0.044715 * x * x * x));
    return (1 + t) / 2 + x / 2 * (1 - t * t) * root * (1 + 3 * 0.044715 * x * x);
}

}  // namespace coeus::test
