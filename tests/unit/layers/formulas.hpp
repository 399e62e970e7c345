// SPDX-License-Identifier: Apache-2.0
// Formulas in plain loops, in double, and what a layer needs to run, for tests of values.
#pragma once

#include "coeus/layers/context.hpp"
#include "coeus/state/parameters.hpp"
#include "support/model.hpp"
#include "support/support.hpp"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace coeus::test {

using Matrix = std::vector<std::vector<double>>;

/// Parameters, arenas and a batch for one layer.
struct Bench {
    Parameters parameters{{Dtype::f64, Dtype::f64}};
    Exec exec;
    Frame frame;
    Arena temp;
    StepScalars scalars;
    TestBatch data;
    Batch batch;
    Ctx c{exec, cpu_kernels(), frame, temp, batch, scalars};

    explicit Bench(TestBatch b, int64_t bytes = 1 << 20)
        : frame(bytes, 64), temp(bytes, "temporaries"), data(std::move(b)), batch(data.view()) {
        exec.workspace = Arena(1 << 20, "workspace");
    }
    const Storage& weight(const std::string& name, const Shape& shape) {
        return parameters.add({.name = name, .shape = shape, .init = Init::normal(0.7)});
    }
    void allocate() {
        parameters.allocate(true);
        parameters.initialise(1, 1);
    }
    Tensor random(int64_t rows, int64_t cols) {
        const Tensor t = frame.keep(Dtype::f64, {rows, cols});
        for (int64_t i = 0; i < t.count(); ++i) set_element(t, i, std::sin(1.7 * double(i) + 0.3));
        return t;
    }
};

inline Matrix matrix(const Tensor& t) {
    Matrix m(size_t(t.rows()));
    for (int64_t i = 0; i < t.count(); ++i) m[size_t(i / t.cols())].push_back(element(t, i));
    return m;
}

/// x W^T
inline Matrix product(const Matrix& x, const Matrix& w) {
    Matrix y;
    for (const auto& row : x) {
        y.emplace_back();
        for (const auto& out : w) {
            double sum = 0;
            for (size_t j = 0; j < row.size(); ++j) sum += row[j] * out[j];
            y.back().push_back(sum);
        }
    }
    return y;
}

inline double largest_difference(const Matrix& a, const Tensor& b) {
    double worst = 0;
    for (size_t i = 0; i < a.size(); ++i)
        for (size_t j = 0; j < a[i].size(); ++j)
            worst = worse_of(worst, std::fabs(a[i][j] - element(b, int64_t(i * a[i].size() + j))));
    return worst;
}

}  // namespace coeus::test
