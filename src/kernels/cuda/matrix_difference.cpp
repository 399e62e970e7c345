// SPDX-License-Identifier: Apache-2.0
#include "matrix_difference.hpp"

#include "coeus/base/error.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace coeus::cuda {

namespace {

constexpr int64_t side = 64;
constexpr double infinity = std::numeric_limits<double>::infinity();

struct Norms {
    double expected = 0, difference = 0;  // squares

    double relative() const {
        if (difference == 0) return 0;
        const double ratio = std::sqrt(difference / expected);
        return std::isfinite(ratio) ? ratio : infinity;
    }
};

template <class T>
Norms norms_of(const Tensor& expected, const Tensor& other, int64_t first_row, int64_t first_column) {
    Norms norms;
    for (int64_t i = first_row; i < std::min(first_row + side, expected.rows()); ++i) {
        const T* const x = expected.as<const T>() + i * expected.ld;
        const T* const y = other.as<const T>() + i * other.ld;
        for (int64_t j = first_column; j < std::min(first_column + side, expected.cols()); ++j) {
            const auto a = double(float(x[j])), b = double(float(y[j]));
            norms.expected += a * a;
            norms.difference += (a - b) * (a - b);
        }
    }
    return norms;
}

}  // namespace

MatrixDifference difference_of(const Tensor& expected, const Tensor& other) {
    require(expected.rows() == other.rows() && expected.cols() == other.cols() &&
                expected.dtype == other.dtype &&
                (expected.dtype == Dtype::f32 || expected.dtype == Dtype::bf16),
            "difference_of: shapes or types do not fit");
    double largest = 0, of_all = 0;
#pragma omp parallel for reduction(max : largest, of_all)
    for (int64_t row = 0; row < expected.rows(); row += side)
        for (int64_t column = 0; column < expected.cols(); column += side) {
            const Norms norms = expected.dtype == Dtype::f32 ? norms_of<float>(expected, other, row, column)
                                                             : norms_of<bf16>(expected, other, row, column);
            largest = std::max(largest, norms.relative());
            of_all = std::max(of_all, std::isnan(norms.expected) ? infinity : norms.expected);
        }
    return {largest, of_all == 0};
}

}  // namespace coeus::cuda
