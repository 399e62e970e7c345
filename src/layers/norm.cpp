// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/norm.hpp"

namespace coeus {

namespace {

// The memory of dx, whose largest magnitude is found if plus has room for it.
Tensor result_of(Tensor dy, Tensor plus) {
    if (plus) return plus;
    dy.largest = nullptr;
    return dy;
}

// The destination of the weight's gradient; absent if there is no weight or it is frozen.
Tensor gradient_of(const Storage* weight) {
    return weight && weight->trainable() ? weight->g : Tensor{};
}

}  // namespace

Tensor RmsNorm::forward(Ctx& c, Tensor x) const {
    const Tensor y = allocate(c, output_, x.dtype, x.shape);
    Tensor rstd = c.frame.keep(acc_of(x.dtype), {x.rows()});
    c.k.rms_norm(c.exec, y, rstd, {}, x, weight_->w, form_);
    c.frame.push(this, x);
    c.frame.push(this, rstd);
    return y;
}

Tensor RmsNorm::again(Ctx& c) const {
    const Tensor rstd = c.frame.pop(this), x = c.frame.pop(this);
    const Tensor y = allocate(c, output_.again(), x.dtype, x.shape);
    c.k.rms_norm(c.exec, y, rstd, {}, x, weight_->w, form_);
    c.frame.push(this, x);
    c.frame.push(this, rstd);
    return y;
}

Tensor RmsNorm::backward(Ctx& c, Tensor dy, Tensor plus) const {
    const Tensor rstd = c.frame.pop(this), x = c.frame.pop(this);
    const Tensor dx = result_of(dy, plus);
    c.k.rms_norm_backward(c.exec, dx, gradient_of(weight_), dy, plus, x, rstd, weight_->w, form_);
    return dx;
}

void ResidualNorm::compute(Ctx& c, Tensor y, Tensor x, Tensor residual) const {
    const Tensor rstd = c.frame.keep(acc_of(x.dtype), {x.rows()});
    c.k.rms_norm(c.exec, y, rstd, residual, x, weight_->w, form_);
    c.frame.push(this, x);
    c.frame.push(this, rstd);
}

Tensor ResidualNorm::forward(Ctx& c, Tensor x, Tensor residual) const {
    const Tensor y = allocate(c, output_, x.dtype, x.shape);
    compute(c, y, x, residual);
    return y;
}

void ResidualNorm::rebuild(Ctx& c, Tensor x) const {
    const Scope unused(c.temp);
    compute(c, c.temp.alloc(x.dtype, x.shape), x, {});
}

Tensor ResidualNorm::backward(Ctx& c, Tensor dy) const {
    const Tensor rstd = c.frame.pop(this), x = c.frame.pop(this);
    const Tensor dx = c.largest_of_gradient ? with_largest(c, x, c.largest_of_gradient) : x;
    c.k.rms_norm_backward(c.exec, dx, gradient_of(weight_), dy, {}, x, rstd, weight_->w, form_);
    return dx;
}

Tensor LayerNorm::forward(Ctx& c, Tensor x) const {
    const Tensor y = allocate(c, output_, x.dtype, x.shape);
    Tensor mean = c.frame.keep(acc_of(x.dtype), {x.rows()});
    Tensor rstd = c.frame.keep(acc_of(x.dtype), {x.rows()});
    c.k.layer_norm(c.exec, y, mean, rstd, x, weight_ ? weight_->w : Tensor{}, eps_);
    c.frame.push(this, x);
    c.frame.push(this, mean);
    c.frame.push(this, rstd);
    return y;
}

Tensor LayerNorm::again(Ctx& c) const {
    const Tensor rstd = c.frame.pop(this), mean = c.frame.pop(this), x = c.frame.pop(this);
    const Tensor y = allocate(c, output_.again(), x.dtype, x.shape);
    c.k.layer_norm(c.exec, y, mean, rstd, x, weight_ ? weight_->w : Tensor{}, eps_);
    c.frame.push(this, x);
    c.frame.push(this, mean);
    c.frame.push(this, rstd);
    return y;
}

Tensor LayerNorm::backward(Ctx& c, Tensor dy, Tensor plus) const {
    const Tensor rstd = c.frame.pop(this), mean = c.frame.pop(this), x = c.frame.pop(this);
    const Tensor dx = result_of(dy, plus);
    c.k.layer_norm_backward(c.exec, dx, gradient_of(weight_), dy, plus, x, mean, rstd,
                            weight_ ? weight_->w : Tensor{});
    return dx;
}

}  // namespace coeus
