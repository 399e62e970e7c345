// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/parallel_block.hpp"

namespace coeus {

Flow ParallelBlock::forward(Ctx& c, Flow in) const {
    Tensor h = in.hidden();
    const Scope temps(c.temp);
    const Tensor x = norm_->forward(c, h);
    for (const auto& sublayer : sublayers_) h = sublayer->forward(c, x, h);
    return h;
}

void ParallelBlock::rebuild(Ctx& c, Flow in) const {
    const Scope temps(c.temp);
    const Tensor x = norm_->forward(c, in.hidden());
    for (const auto& sublayer : sublayers_) sublayer->rebuild(c, x);
}

Flow ParallelBlock::backward(Ctx& c, Flow dout) const {
    Tensor dh = dout.hidden();
    const Scope temps(c.temp);
    Tensor dx;
    for (auto sublayer = sublayers_.rbegin(); sublayer != sublayers_.rend(); ++sublayer) {
        const Tensor part = (*sublayer)->backward(c, dh);
        if (dx)
            c.k.add(c.exec, dx, part);
        else
            dx = part;
    }
    // dh becomes the gradient of what the block before this one has written
    if (c.largest_of_gradient) dh = with_largest(c, dh, c.largest_of_gradient);
    return norm_->backward(c, dx, dh);
}

}  // namespace coeus
