// SPDX-License-Identifier: Apache-2.0
// RMSNorm, of rows or of heads, and LayerNorm.
#include "../../rows/norm.hpp"

#include "../quantization/rounded.hpp"
#include "column_sums.hpp"

namespace coeus::cpu {

namespace {

/// Runs `row(i)` for all rows. If there is a dweight, adds g(i, j) to it for each column j before row(i)
/// runs, since that may overwrite what g reads.
template <class A, class Row, class Gradient>
void backward_rows(Exec& exec, Tensor dweight, int64_t rows, int64_t width, Row&& row, Gradient&& g) {
    add_column_sums<A>(exec, dweight, rows, width, [&](int64_t i, A* sums) {
        if (sums) Lane().each(width, [&](int64_t j) { sums[j] += g(i, j); });
        row(i);
    });
}

void check(Tensor y, Tensor x, Tensor weight, Tensor statistic) {
    require(y.rows() == x.rows() && y.cols() == x.cols(), "norm: input and output differ in shape");
    require(!weight || weight.count() == x.cols(), "norm: the weight does not have the width of the input");
    require(statistic.count() == x.rows(), "norm: needs one statistic for each row");
    require(!y.largest || y.has_largest(), "norm: the result has one largest magnitude");
}

}  // namespace

void Cpu::rms_norm(Exec& exec, Tensor y, Tensor rstd, Tensor plus, Tensor x, Tensor weight,
                   const NormForm& form) {
    check(y, x, weight, rstd);
    dispatch(x.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        const T* w = weight.as<const T>();
        A* r = rstd.as<A>();
        with_lane(y, [&](const auto& lane) {
            parallel_rows(exec, x.rows(), x.cols(), [&](int64_t i) {
                r[i] = rms_norm_added_row(lane, y.row<T>(i), plus ? plus.row<const T>(i) : nullptr,
                                          x.row<const T>(i), w, A(form.offset), x.cols(), A(form.eps));
                round_row<T>(y, i);
            });
        });
    });
}

void Cpu::rms_norm_backward(Exec& exec, Tensor dx, Tensor dweight, Tensor dy, Tensor plus, Tensor x,
                            Tensor rstd, Tensor weight, const NormForm& form) {
    check(dx, x, weight, rstd);
    dispatch(x.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        const T *w = weight.as<const T>(), *in = x.as<const T>(), *d = dy.as<const T>();
        const A* r = rstd.as<const A>();
        const auto gradient = [=](int64_t i, int64_t j) {
            return load(d[i * dy.ld + j]) * load(in[i * x.ld + j]) * r[i];
        };
        with_lane(dx, [&](const auto& lane) {
            const auto row = [&](int64_t i) {
                rms_norm_backward_row(lane, dx.row<T>(i), d + i * dy.ld,
                                      plus ? plus.row<const T>(i) : nullptr, in + i * x.ld, r[i], w,
                                      A(form.offset), x.cols());
            };
            backward_rows<A>(exec, dweight, x.rows(), x.cols(), row, gradient);
        });
    });
}

namespace {

/// The heads [d] of a matrix [T, n d], numbered token by token.
template <class T>
struct HeadsOf {
    T* data;
    int64_t ld, heads, width;
    HeadsOf(const Tensor& t, int64_t head_dim)
        : data(t.as<T>()), ld(t.ld), heads(t.cols() / head_dim), width(head_dim) {}
    T* operator[](int64_t i) const { return data + i / heads * ld + i % heads * width; }
};

void check_heads(Tensor y, Tensor x, Tensor weight, int64_t head_dim) {
    require(y.rows() == x.rows() && y.cols() == x.cols(), "norm: input and output differ in shape");
    require(x.cols() % head_dim == 0, "head_norm: columns are not whole heads");
    require(!weight || weight.count() == head_dim, "head_norm: the weight does not have the width of a head");
}

}  // namespace

void Cpu::head_norm(Exec& exec, Tensor y, Tensor x, Tensor weight, int64_t head_dim, const NormForm& form) {
    check_heads(y, x, weight, head_dim);
    dispatch(x.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        const HeadsOf<T> out(y, head_dim);
        const HeadsOf<const T> in(x, head_dim);
        const T* w = weight ? weight.as<const T>() : nullptr;
        parallel_rows(exec, x.count() / head_dim, head_dim, [&](int64_t i) {
            rms_norm_row(Lane(), out[i], in[i], w, A(form.offset), head_dim, A(form.eps));
        });
    });
}

void Cpu::head_norm_backward(Exec& exec, Tensor dx, Tensor dweight, Tensor dy, Tensor x, Tensor weight,
                             int64_t head_dim, const NormForm& form) {
    check_heads(dx, x, weight, head_dim);
    dispatch(x.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        const HeadsOf<T> out(dx, head_dim);
        const HeadsOf<const T> d(dy, head_dim), in(x, head_dim);
        const T* w = weight ? weight.as<const T>() : nullptr;
        add_column_sums<A>(exec, dweight, x.count() / head_dim, head_dim, [&](int64_t i, A* sums) {
            const T *di = d[i], *xi = in[i];
            const A r = rms_norm_rstd<T>(Lane(), xi, head_dim, A(form.eps));
            if (sums) Lane().each(head_dim, [=](int64_t j) { sums[j] += load(di[j]) * load(xi[j]) * r; });
            if (w)
                rms_norm_backward_row(Lane(), out[i], di, static_cast<const T*>(nullptr), xi, r, w,
                                      A(form.offset), head_dim);
            else
                rms_norm_backward_row(Lane(), out[i], di, xi, r, head_dim);
        });
    });
}

void Cpu::layer_norm(Exec& exec, Tensor y, Tensor mean, Tensor rstd, Tensor x, Tensor weight, double eps) {
    check(y, x, weight, rstd);
    dispatch(x.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        const T* w = weight ? weight.as<const T>() : nullptr;
        A *m = mean.as<A>(), *r = rstd.as<A>();
        with_lane(y, [&](const auto& lane) {
            parallel_rows(exec, x.rows(), x.cols(), [&](int64_t i) {
                const auto kept = layer_norm_row(lane, y.row<T>(i), x.row<const T>(i), w, x.cols(), A(eps));
                m[i] = kept.mean;
                r[i] = kept.rstd;
                round_row<T>(y, i);
            });
        });
    });
}

void Cpu::layer_norm_backward(Exec& exec, Tensor dx, Tensor dweight, Tensor dy, Tensor plus, Tensor x,
                              Tensor mean, Tensor rstd, Tensor weight) {
    check(dx, x, weight, rstd);
    dispatch(x.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        const T* w = weight ? weight.as<const T>() : nullptr;
        const T *in = x.as<const T>(), *d = dy.as<const T>();
        const A *m = mean.as<const A>(), *r = rstd.as<const A>();
        const auto gradient = [=](int64_t i, int64_t j) {
            return load(d[i * dy.ld + j]) * (load(in[i * x.ld + j]) - m[i]) * r[i];
        };
        with_lane(dx, [&](const auto& lane) {
            const auto row = [&](int64_t i) {
                layer_norm_backward_row(lane, dx.row<T>(i), d + i * dy.ld,
                                        plus ? plus.row<const T>(i) : nullptr, in + i * x.ld, m[i], r[i], w,
                                        x.cols());
            };
            backward_rows<A>(exec, dweight, x.rows(), x.cols(), row, gradient);
        });
    });
}

}  // namespace coeus::cpu
