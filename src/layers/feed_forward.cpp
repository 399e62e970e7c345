// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/feed_forward.hpp"

namespace coeus {

Tensor FeedForward::forward(Ctx& c, Tensor x, Tensor residual) const {
    const Tensor gate_up = w13_.forward(c, x);
    Tensor activated = c.frame.keep(x.dtype, {gate_up.rows(), gate_up.cols() / 2});
    c.k.swiglu(c.exec, activated, gate_up);
    c.frame.push(this, gate_up);
    return w2_.forward(c, activated, residual);
}

Tensor FeedForward::backward(Ctx& c, Tensor dy) const {
    const Tensor dactivated = w2_.backward(c, dy);
    const Tensor gate_up = c.frame.pop(this);
    c.k.swiglu_backward(c.exec, gate_up, dactivated, gate_up);  // the gradient takes the place of gate_up
    return w13_.backward(c, gate_up);
}

}  // namespace coeus
