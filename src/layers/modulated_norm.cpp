// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/modulated_norm.hpp"

namespace coeus {

SequenceRows rows_of_samples(Tensor x, Tensor of_samples) {
    require(x.rows() % of_samples.rows() == 0, "samples must have equally many rows");
    return {.first = 0, .length = x.rows() / of_samples.rows()};
}

Tensor Modulation::forward(Ctx& c, Tensor cond, Dtype type) const {
    Tensor x = cond;
    if (type != cond.dtype) {
        x = c.frame.keep(type, cond.shape);
        c.k.cast(c.exec, x, cond);
    }
    return linear_.forward(c, x, type);
}

void Modulation::backward(Ctx& c, Tensor dcond, Tensor dm, Dtype type) const {
    const Scope temps(c.temp);
    Tensor dy = dm;
    if (type != dm.dtype) {
        dy = c.temp.alloc(type, dm.shape);
        c.k.cast(c.exec, dy, dm);
    }
    c.k.add(c.exec, dcond, linear_.backward(c, dy));
}

Tensor ModulatedNorm::compute(Ctx& c, const Input& in, const Output& output) const {
    const Tensor y = allocate(c, output, in.x.dtype, in.x.shape);
    c.k.layer_norm(c.exec, y, in.mean, in.rstd, in.x, {}, eps_);
    c.k.modulate(c.exec, y, {}, y, in.shift, in.scale, rows_of_samples(y, in.scale), 1);
    return y;
}

void ModulatedNorm::push(Ctx& c, const Input& in) const {
    for (const Tensor& tensor : {in.x, in.mean, in.rstd, in.shift, in.scale}) c.frame.push(this, tensor);
}

ModulatedNorm::Input ModulatedNorm::pop(Ctx& c) const {
    Input in;
    in.scale = c.frame.pop(this);
    in.shift = c.frame.pop(this);
    in.rstd = c.frame.pop(this);
    in.mean = c.frame.pop(this);
    in.x = c.frame.pop(this);
    return in;
}

Tensor ModulatedNorm::forward(Ctx& c, Tensor x, Tensor shift, Tensor scale) const {
    const Dtype acc = acc_of(x.dtype);
    const Input in = {x, c.frame.keep(acc, {x.rows()}), c.frame.keep(acc, {x.rows()}), shift, scale};
    const Tensor y = compute(c, in, output_);
    push(c, in);
    return y;
}

Tensor ModulatedNorm::again(Ctx& c) const {
    const Input in = pop(c);
    const Tensor y = compute(c, in, output_.again());
    push(c, in);
    return y;
}

Tensor ModulatedNorm::backward(Ctx& c, Tensor dshift, Tensor dscale, Tensor dy, Tensor plus) const {
    const Input in = pop(c);
    const Scope temps(c.temp);
    const Tensor normed = c.temp.alloc(in.x.dtype, in.x.shape);
    c.k.layer_norm(c.exec, normed, in.mean, in.rstd, in.x, {}, eps_);
    c.k.modulate_backward(c.exec, dy, dshift, dscale, dy, normed, in.scale, rows_of_samples(dy, in.scale), 1);
    const Tensor dx = plus ? plus : dy;
    c.k.layer_norm_backward(c.exec, dx, {}, dy, plus, in.x, in.mean, in.rstd, {});
    return dx;
}

void GatedSum::forward(Ctx& c, Tensor out, Tensor plus, Tensor x, Tensor gate) const {
    c.k.modulate(c.exec, out, plus, x, {}, gate, rows_of_samples(x, gate), 0);
    rebuild(c, x, gate);
}

void GatedSum::rebuild(Ctx& c, Tensor x, Tensor gate) const {
    c.frame.push(this, x);
    c.frame.push(this, gate);
}

Tensor GatedSum::backward(Ctx& c, Tensor dgate, Tensor dout) const {
    const Tensor gate = c.frame.pop(this), x = c.frame.pop(this);
    const Tensor dx = c.temp.alloc(x.dtype, x.shape);
    c.k.modulate_backward(c.exec, dx, {}, dgate, dout, x, gate, rows_of_samples(x, gate), 0);
    return dx;
}

}  // namespace coeus
