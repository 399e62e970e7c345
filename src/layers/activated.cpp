// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/activated.hpp"

namespace coeus {

Tensor Activated::compute(Ctx& c, Tensor x, const Output& output) const {
    const Tensor y = allocate(c, output, x.dtype, {x.rows(), x.cols()});
    c.k.activation(c.exec, y, x, kind_);
    c.frame.push(this, x);
    return y;
}

Tensor Activated::forward(Ctx& c, Tensor x) const {
    return compute(c, x, output_);
}

Tensor Activated::again(Ctx& c) const {
    return compute(c, c.frame.pop(this), output_.again());
}

Tensor Activated::backward(Ctx& c, Tensor dy) const {
    const Tensor x = c.frame.pop(this);
    c.k.activation_backward(c.exec, dy, dy, x, kind_);
    return dy;
}

Tensor BesideActivated::compute(Ctx& c, Tensor attended, Tensor x, const Output& output) const {
    const int64_t width = attended.cols();
    const Tensor y = allocate(c, output, x.dtype, {x.rows(), width + x.cols()});
    c.k.cast(c.exec, y.slice_cols(0, width), attended);
    c.k.activation(c.exec, y.slice_cols(width, x.cols()), x, kind_);
    c.frame.push(this, attended);
    c.frame.push(this, x);
    return y;
}

Tensor BesideActivated::forward(Ctx& c, Tensor attended, Tensor x) const {
    return compute(c, attended, x, output_);
}

Tensor BesideActivated::again(Ctx& c) const {
    const Tensor x = c.frame.pop(this), attended = c.frame.pop(this);
    return compute(c, attended, x, output_.again());
}

Tensor BesideActivated::backward(Ctx& c, Tensor dy) const {
    const Tensor x = c.frame.pop(this), attended = c.frame.pop(this);
    const int64_t width = attended.cols();
    c.k.activation_backward(c.exec, x, dy.slice_cols(width, x.cols()), x, kind_);
    return dy.slice_cols(0, width);
}

}  // namespace coeus
