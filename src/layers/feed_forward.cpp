// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/feed_forward.hpp"

namespace coeus {

Tensor GatedUnit::activate(Ctx& c, Tensor gate_up, Output output) const {
    const Tensor y = allocate(c, output, gate_up.dtype, {gate_up.rows(), gate_up.cols() / 2});
    (activation_ == Activation::silu ? c.k.swiglu : c.k.geglu)(c.exec, y, gate_up);
    c.frame.push(this, gate_up);
    return y;
}

Tensor GatedUnit::forward(Ctx& c, Tensor gate_up) const {
    return activate(c, gate_up, output_);
}

Tensor GatedUnit::rebuild(Ctx& c, Tensor gate_up) const {
    return activate(c, gate_up, output_.again());
}

Tensor GatedUnit::again(Ctx& c) const {
    return rebuild(c, c.frame.pop(this));
}

Tensor GatedUnit::backward(Ctx& c, Tensor dy) const {
    const Tensor gate_up = c.frame.pop(this);
    const Tensor gradient = with_groups(c, gate_up, gradient_groups_, Output::recomputed, 2);
    (activation_ == Activation::silu ? c.k.swiglu_backward : c.k.geglu_backward)(c.exec, gradient, dy,
                                                                                 gate_up);
    return gradient;
}

Tensor FeedForward::forward(Ctx& c, Tensor x, Tensor residual) const {
    return w2_.forward(c, unit_->forward(c, w13_.forward(c, x)), residual);
}

void FeedForward::rebuild(Ctx& c, Tensor x) const {
    w2_.rebuild(c, unit_->rebuild(c, w13_.forward(c, x)));
}

Tensor FeedForward::backward(Ctx& c, Tensor dy) const {
    return w13_.backward(c, unit_->backward(c, w2_.backward(c, dy)));
}

}  // namespace coeus
