// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/linear.hpp"

namespace coeus {

Tensor Linear::forward(Ctx& c, Tensor x, Tensor residual) const {
    const Tensor w = weight_->w;
    Tensor y = c.frame.keep(x.dtype, {x.rows(), w.rows()});
    c.k.gemm(c.exec, y, x, transposed(w), residual);
    c.frame.push(this, x);
    return y;
}

Tensor Linear::backward(Ctx& c, Tensor dy) const {
    const Tensor x = c.frame.pop(this);
    Tensor dx = c.temp.alloc(x.dtype, x.shape);
    c.k.gemm(c.exec, dx, dy, weight_->w, {});
    c.frame.later(c, {weight_, x, dy});
    return dx;
}

}  // namespace coeus
