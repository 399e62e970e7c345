// SPDX-License-Identifier: Apache-2.0
// RMSNorm and LayerNorm. The weight's gradient is summed over fixed blocks of rows, and then over the blocks
// in order, so that it has the same bits for any number of threads.
#include "../rows/norm.hpp"

#include "cpu.hpp"
#include "workspace.hpp"

namespace coeus::cpu {

namespace {

/// Runs `row(i)` for all rows. If there is a dweight, adds g(i, j) to it for each column j before row(i)
/// runs, since that may overwrite what g reads.
template <class A, class Row, class Gradient>
void backward_rows(Exec& exec, Tensor dweight, int64_t rows, int64_t width, Row&& row, Gradient&& g) {
    const int64_t blocks = div_ceil(rows, workspace::norm_block);
    A* partial = dweight ? exec.workspace.alloc(dweight.dtype, {blocks, width}).template as<A>() : nullptr;
    parallel_blocks(exec, rows, workspace::norm_block, [&](int64_t block, int64_t first, int64_t last) {
        A* sums = partial + block * width;
        if (partial) std::fill(sums, sums + width, A(0));
        for (int64_t i = first; i < last; ++i) {
            if (partial) Lane().each(width, [&](int64_t j) { sums[j] += g(i, j); });
            row(i);
        }
    });
    if (!partial) return;
    A* out = dweight.as<A>();
    parallel_blocks(exec, width, 1024, [&](int64_t, int64_t first, int64_t last) {
        for (int64_t block = 0; block < blocks; ++block)
            Lane().each(last - first,
                        [&](int64_t j) { out[first + j] += partial[block * width + first + j]; });
    });
}

void check(Tensor y, Tensor x, Tensor weight, Tensor statistic) {
    require(y.rows() == x.rows() && y.cols() == x.cols(), "norm: input and output differ in shape");
    require(!weight || weight.count() == x.cols(), "norm: the weight does not have the width of the input");
    require(statistic.count() == x.rows(), "norm: needs one statistic for each row");
}

}  // namespace

void Cpu::rms_norm(Exec& exec, Tensor y, Tensor rstd, Tensor x, Tensor weight, double eps) {
    check(y, x, weight, rstd);
    dispatch(x.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        const T* w = weight.as<const T>();
        A* r = rstd.as<A>();
        parallel_rows(exec, x.rows(), x.cols(), [&](int64_t i) {
            r[i] = rms_norm_row(Lane(), y.row<T>(i), x.row<const T>(i), w, x.cols(), A(eps));
        });
    });
}

void Cpu::rms_norm_backward(Exec& exec, Tensor dx, Tensor dweight, Tensor dy, Tensor plus, Tensor x,
                            Tensor rstd, Tensor weight) {
    check(dx, x, weight, rstd);
    Scope scope(exec.workspace);
    dispatch(x.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        const T *w = weight.as<const T>(), *in = x.as<const T>(), *d = dy.as<const T>();
        const A* r = rstd.as<const A>();
        const auto row = [&](int64_t i) {
            rms_norm_backward_row(Lane(), dx.row<T>(i), d + i * dy.ld, plus ? plus.row<const T>(i) : nullptr,
                                  in + i * x.ld, r[i], w, x.cols());
        };
        const auto gradient = [=](int64_t i, int64_t j) {
            return load(d[i * dy.ld + j]) * load(in[i * x.ld + j]) * r[i];
        };
        backward_rows<A>(exec, dweight, x.rows(), x.cols(), row, gradient);
    });
}

void Cpu::layer_norm(Exec& exec, Tensor y, Tensor mean, Tensor rstd, Tensor x, Tensor weight, double eps) {
    check(y, x, weight, rstd);
    dispatch(x.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        const T* w = weight ? weight.as<const T>() : nullptr;
        A *m = mean.as<A>(), *r = rstd.as<A>();
        parallel_rows(exec, x.rows(), x.cols(), [&](int64_t i) {
            const auto kept = layer_norm_row(Lane(), y.row<T>(i), x.row<const T>(i), w, x.cols(), A(eps));
            m[i] = kept.mean;
            r[i] = kept.rstd;
        });
    });
}

void Cpu::layer_norm_backward(Exec& exec, Tensor dx, Tensor dweight, Tensor dy, Tensor plus, Tensor x,
                              Tensor mean, Tensor rstd, Tensor weight) {
    check(dx, x, weight, rstd);
    Scope scope(exec.workspace);
    dispatch(x.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        const T* w = weight ? weight.as<const T>() : nullptr;
        const T *in = x.as<const T>(), *d = dy.as<const T>();
        const A *m = mean.as<const A>(), *r = rstd.as<const A>();
        const auto row = [&](int64_t i) {
            layer_norm_backward_row(Lane(), dx.row<T>(i), d + i * dy.ld,
                                    plus ? plus.row<const T>(i) : nullptr, in + i * x.ld, m[i], r[i], w,
                                    x.cols());
        };
        const auto gradient = [=](int64_t i, int64_t j) {
            return load(d[i * dy.ld + j]) * (load(in[i * x.ld + j]) - m[i]) * r[i];
        };
        backward_rows<A>(exec, dweight, x.rows(), x.cols(), row, gradient);
    });
}

}  // namespace coeus::cpu
