// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/linear.hpp"

#include "coeus/layers/tokens.hpp"

namespace coeus {

Tensor ColLinear::forward(Ctx& c, Tensor x) const {
    const Tensor y = c.frame.keep(x.dtype, {x.rows() * c.tp.size(), weight_->w.rows()});
    const Scope temps(c.temp);
    c.k.gemm(c.exec, y, gather_tokens(c, x), transposed(weight_->w), {});
    input_.keep(c, x);
    return y;
}

Tensor ColLinear::backward(Ctx& c, Tensor dy) const {
    const Tensor dx = c.temp.alloc(dy.dtype, {dy.rows() / c.tp.size(), weight_->w.cols()});
    {
        const Scope temps(c.temp);
        const Tensor parts = parts_of(c, dx);
        c.k.gemm(c.exec, parts, dy, weight_->w, {});
        scatter_tokens(c, dx, parts);
    }
    const Scope temps(c.temp);
    c.frame.later(c, {.storage = weight_,
                      .x = input_.recall(c),
                      .dy = dy,
                      .x_is_scattered = true,
                      .x_is_lent = input_.is_recomputed()});
    return dx;
}

Tensor RowLinear::forward(Ctx& c, Tensor x, Tensor residual) const {
    const Tensor w = weight_->w;
    const int64_t rows = x.rows() / c.tp.size();
    const Tensor y = c.frame.keep(x.dtype, {rows, w.rows()});
    const Scope temps(c.temp);
    const Tensor parts = parts_of(c, y);
    for (int rank = 0; rank < c.tp.size(); ++rank)
        c.k.gemm(c.exec, parts.slice_rows(rank * rows, rows), x.slice_rows(rank * rows, rows), transposed(w),
                 rank == c.tp.rank() ? residual : Tensor{});
    scatter_tokens(c, y, parts);
    input_.keep(c, x);
    return y;
}

Tensor RowLinear::backward(Ctx& c, Tensor dy) const {
    const Tensor dx = c.temp.alloc(dy.dtype, {dy.rows() * c.tp.size(), weight_->w.cols()});
    const Scope temps(c.temp);
    const Tensor all = gather_tokens(c, dy);
    c.k.gemm(c.exec, dx, all, weight_->w, {});
    c.frame.later(c, {.storage = weight_,
                      .x = input_.recall(c),
                      .dy = all,
                      .x_is_lent = input_.is_recomputed(),
                      .dy_is_lent = true});
    return dx;
}

}  // namespace coeus
