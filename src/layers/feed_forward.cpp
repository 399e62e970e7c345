// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/feed_forward.hpp"

namespace coeus {

Tensor SwiGlu::activate(Ctx& c, Tensor gate_up, Output output) const {
    const Tensor y = allocate(c, output, gate_up.dtype, {gate_up.rows(), gate_up.cols() / 2});
    c.k.swiglu(c.exec, y, gate_up);
    c.frame.push(this, gate_up);
    return y;
}

Tensor SwiGlu::forward(Ctx& c, Tensor gate_up) const {
    return activate(c, gate_up, output_);
}

Tensor SwiGlu::rebuild(Ctx& c, Tensor gate_up) const {
    return activate(c, gate_up, output_.again());
}

Tensor SwiGlu::again(Ctx& c) const {
    return rebuild(c, c.frame.pop(this));
}

Tensor SwiGlu::backward(Ctx& c, Tensor dy) const {
    const Tensor gate_up = c.frame.pop(this);
    const Tensor gradient = with_groups(c, gate_up, gradient_groups_, Output::recomputed, 2);
    c.k.swiglu_backward(c.exec, gradient, dy, gate_up);
    return gradient;
}

Tensor FeedForward::forward(Ctx& c, Tensor x, Tensor residual) const {
    return w2_.forward(c, swiglu_->forward(c, w13_.forward(c, x)), residual);
}

void FeedForward::rebuild(Ctx& c, Tensor x) const {
    w2_.rebuild(c, swiglu_->rebuild(c, w13_.forward(c, x)));
}

Tensor FeedForward::backward(Ctx& c, Tensor dy) const {
    return w13_.backward(c, swiglu_->backward(c, w2_.backward(c, dy)));
}

}  // namespace coeus
