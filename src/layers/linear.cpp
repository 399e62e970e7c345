// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/linear.hpp"

#include "coeus/layers/sequence_parallel.hpp"

#include <algorithm>

namespace coeus {

namespace {

void add_bias(Ctx& c, Tensor y, const Storage* bias) {
    if (bias) c.k.add_bias(c.exec, y, bias->w);
}
void add_bias_backward(Ctx& c, Tensor dy, const Storage* bias) {
    if (bias && bias->trainable()) c.k.add_bias_backward(c.exec, bias->g, dy);
}

}  // namespace

Tensor ColLinear::forward(Ctx& c, Tensor x) const {
    const Tensor y = c.frame.keep(x.dtype, {x.rows() * c.tp.size(), weight_->w.rows()});
    const Scope temps(c.temp);
    c.tokens.gather(c, x, [&](Tensor rows, int64_t first) {
        const Tensor part = y.slice_rows(first, rows.rows());
        c.k.gemm(c.exec, part, rows, transposed(weight_->w), {});
        add_bias(c, part, bias_);
    });
    input_.keep(c, x);
    return y;
}

Tensor ColLinear::backward(Ctx& c, Tensor dy) const {
    add_bias_backward(c, dy, bias_);
    const Tensor dx = c.temp.alloc(dy.dtype, {dy.rows() / c.tp.size(), weight_->w.cols()});
    c.tokens.scatter(c, dx, [&](Tensor rows, int64_t first) {
        c.k.gemm(c.exec, rows, dy.slice_rows(first, rows.rows()), weight_->w, {});
    });
    const Scope temps(c.temp);
    c.frame.later(c, {.storage = weight_,
                      .x = input_.recall(c),
                      .dy = dy,
                      .x_is_scattered = true,
                      .x_is_lent = input_.is_recomputed()});
    return dx;
}

Tensor TokenLinear::forward(Ctx& c, Tensor x, Dtype type, Tensor plus) const {
    const Tensor y = plus ? plus : c.frame.keep(type, {x.rows(), w().rows()});
    c.k.gemm(c.exec, y, x, transposed(w()), plus);
    add_bias(c, y, bias_);
    input_.keep(c, x);
    return y;
}

Tensor TokenLinear::backward(Ctx& c, Tensor dy) const {
    add_bias_backward(c, dy, bias_);
    const Tensor dx = c.temp.alloc(dy.dtype, {dy.rows(), cols_});
    c.k.gemm(c.exec, dx, dy, w(), {});
    const Scope temps(c.temp);
    c.frame.later(c, {.storage = weight_,
                      .x = input_.recall(c),
                      .dy = dy,
                      .first_col = first_col_,
                      .x_is_lent = input_.is_recomputed(),
                      .dy_is_lent = true});
    return dx;
}

Tensor RowLinear::forward(Ctx& c, Tensor x, Tensor residual) const {
    const int64_t own = x.rows() / c.tp.size();
    const Tensor y = c.frame.keep(x.dtype, {own, weight_->w.rows()});
    // each rank adds the residual to its own rows: one product for the rows before them, one for them, one
    // for the rows after
    c.tokens.scatter(c, y, [&](Tensor rows, int64_t first) {
        const auto multiply = [&](int64_t begin, int64_t end, Tensor plus) {
            if (begin < end)
                c.k.gemm(c.exec, rows.slice_rows(begin, end - begin),
                         x.slice_rows(first + begin, end - begin), transposed(weight_->w), plus);
        };
        const int64_t all = rows.rows(), mine = c.tp.rank() * own - first,
                      begin = std::clamp<int64_t>(mine, 0, all),
                      end = std::clamp<int64_t>(mine + own, 0, all);
        multiply(0, begin, {});
        multiply(begin, end, residual);
        multiply(end, all, {});
    });
    add_bias(c, y, bias_);
    input_.keep(c, x);
    return y;
}

Tensor RowLinear::backward(Ctx& c, Tensor dy) const {
    add_bias_backward(c, dy, bias_);
    const Tensor dx = c.temp.alloc(dy.dtype, {dy.rows() * c.tp.size(), weight_->w.cols()});
    const Scope temps(c.temp);
    const Tensor all = c.tokens.gather(c, dy, [&](Tensor rows, int64_t first) {
        c.k.gemm(c.exec, dx.slice_rows(first, rows.rows()), rows, weight_->w, {});
    });
    c.frame.later(c, {.storage = weight_,
                      .x = input_.recall(c),
                      .dy = all,
                      .x_is_lent = input_.is_recomputed(),
                      .dy_is_lent = true});
    return dx;
}

}  // namespace coeus
