// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/linear.hpp"

#include "coeus/layers/token_exchange.hpp"

namespace coeus {

Tensor ColLinear::forward(Ctx& c, Tensor x) const {
    const Tensor y = c.frame.keep(x.dtype, {x.rows() * c.tp.size(), weight_->w.rows()});
    const Scope temps(c.temp);
    c.tokens.gather(c, x, [&](Tensor rows, int64_t first) {
        c.k.gemm(c.exec, y.slice_rows(first, rows.rows()), rows, transposed(weight_->w), {});
    });
    input_.keep(c, x);
    return y;
}

Tensor ColLinear::backward(Ctx& c, Tensor dy) const {
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

Tensor RowLinear::forward(Ctx& c, Tensor x, Tensor residual) const {
    const int64_t own = x.rows() / c.tp.size();
    const Tensor y = c.frame.keep(x.dtype, {own, weight_->w.rows()});
    // one rank adds the residual: that of the rows
    const auto multiply = [&](Tensor out, int64_t first, Tensor plus) {
        c.k.gemm(c.exec, out, x.slice_rows(first, out.rows()), transposed(weight_->w), plus);
    };
    c.tokens.scatter(c, y, [&](Tensor rows, int64_t first) {
        for (int64_t done = 0; done < rows.rows(); done += own)
            multiply(rows.slice_rows(done, own), first + done,
                     first + done == c.tp.rank() * own ? residual : Tensor{});
    });
    input_.keep(c, x);
    return y;
}

Tensor RowLinear::backward(Ctx& c, Tensor dy) const {
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
