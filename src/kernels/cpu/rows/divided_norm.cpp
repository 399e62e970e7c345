// SPDX-License-Identifier: Apache-2.0
// RMSNorm of rows whose columns ranks divide.
#include "../../rows/norm.hpp"
#include "../cpu.hpp"
#include "column_sums.hpp"

namespace coeus::cpu {

using namespace rows;

namespace {

void check_divided(const Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& sums,
                   int64_t width) {
    require(y.rows() == x.rows() && y.cols() == x.cols(), "norm: input and output differ in shape");
    require(weight.count() == x.cols(), "norm: the weight does not have the width of the input");
    require(sums.count() == x.rows(), "norm: needs one sum for each row");
    require(width >= x.cols(), "norm: a part of the columns is wider than all of them");
}

}  // namespace

void Cpu::row_products(Exec& exec, Tensor sums, Tensor a, Tensor b, Tensor weight, double offset) {
    require(a.rows() == b.rows() && a.cols() == b.cols(), "row_products: the operands differ in shape");
    require(sums.count() == a.rows(), "row_products: needs one sum for each row");
    dispatch(a.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        A* const to = sums.as<A>();
        const T* const w = weight ? weight.as<const T>() : nullptr;
        parallel_rows(exec, a.rows(), a.cols(), [&](int64_t i) {
            const T *const ai = a.row<const T>(i), *const bi = b.row<const T>(i);
            to[i] = w ? rms_norm_product<A>(Lane(), ai, bi, w, A(offset), a.cols())
                      : Lane().sum<A>(
                            a.cols(), [](A aj, A bj) { return aj * bj; }, ai, bi);
        });
    });
}

void Cpu::divided_norm(Exec& exec, Tensor y, Tensor x, Tensor squares, Tensor weight, int64_t width,
                       const NormForm& form) {
    check_divided(y, x, weight, squares, width);
    dispatch(x.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        const A* const of_rows = squares.as<const A>();
        const T* const w = weight.as<const T>();
        parallel_rows(exec, x.rows(), x.cols(), [&](int64_t i) {
            const A rstd = inverse_root<T>(of_rows[i] / A(width) + A(form.eps));
            rms_norm_scaled_row(Lane(), y.row<T>(i), x.row<const T>(i), rstd, w, A(form.offset), x.cols());
        });
    });
}

void Cpu::divided_norm_backward(Exec& exec, Tensor dx, Tensor dweight, Tensor dy, Tensor x, Tensor squares,
                                Tensor products, Tensor weight, int64_t width, const NormForm& form) {
    check_divided(dx, x, weight, squares, width);
    dispatch(x.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        const A *const of_rows = squares.as<const A>(), *const dots = products.as<const A>();
        const T* const w = weight.as<const T>();
        add_column_sums<A>(exec, dweight, x.rows(), x.cols(), [&](int64_t i, A* sums) {
            const T *const di = dy.row<const T>(i), *const xi = x.row<const T>(i);
            const A rstd = inverse_root<T>(of_rows[i] / A(width) + A(form.eps));
            if (sums) Lane().each(x.cols(), [=](int64_t j) { sums[j] += load(di[j]) * load(xi[j]) * rstd; });
            rms_norm_pulled_row(Lane(), dx.row<T>(i), di, static_cast<const T*>(nullptr), xi, rstd,
                                dots[i] * rstd * rstd / A(width), w, A(form.offset), x.cols());
        });
    });
}

}  // namespace coeus::cpu
