// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/block.hpp"

namespace coeus {

Tensor ResidualBlock::Part::forward(Ctx& c, Tensor h) const {
    const Tensor x = input(c, h);
    return after ? after->forward(c, sublayer->forward(c, x, {}), h) : sublayer->forward(c, x, h);
}

void ResidualBlock::Part::rebuild(Ctx& c, Tensor h) const {
    const Tensor x = input(c, h);
    if (after)
        after->rebuild(c, sublayer->forward(c, x, {}));
    else
        sublayer->rebuild(c, x);
}

Tensor ResidualBlock::Part::backward(Ctx& c, Tensor dh) const {
    const Tensor dx = sublayer->backward(c, after ? after->backward(c, dh) : dh);
    if (after) dh.largest = nullptr;  // the room for it has that of another gradient now
    if (!before) {
        c.k.add(c.exec, dh, dx);
        return dh;
    }
    // dh becomes the gradient of what the sublayer before this one has written, unless a norm follows that
    if (c.largest_of_gradient && !after) dh = with_largest(c, dh, c.largest_of_gradient);
    return before->backward(c, dx, dh);
}

Flow ResidualBlock::forward(Ctx& c, Flow in) const {
    Tensor h = in.hidden();
    const Scope temps(c.temp);
    for (const Part& part : parts_) h = part.forward(c, h);
    return h;
}

void ResidualBlock::rebuild(Ctx& c, Flow in) const {
    Tensor h = in.hidden();
    const Scope temps(c.temp);
    for (size_t i = 0; i + 1 < parts_.size(); ++i) h = parts_[i].forward(c, h);
    parts_.back().rebuild(c, h);
}

Flow ResidualBlock::backward(Ctx& c, Flow dout) const {
    Tensor dh = dout.hidden();
    const Scope temps(c.temp);
    for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) dh = part->backward(c, dh);
    return dh;
}

}  // namespace coeus
