// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/block.hpp"

namespace coeus {

Flow PreNormBlock::forward(Ctx& c, Flow in) const {
    Tensor h = in.hidden();
    const Scope temps(c.temp);
    for (const Part& part : parts_) h = part.sublayer->forward(c, part.norm->forward(c, h), h);
    return h;
}

void PreNormBlock::rebuild(Ctx& c, Flow in) const {
    Tensor h = in.hidden();
    const Scope temps(c.temp);
    for (size_t i = 0; i + 1 < parts_.size(); ++i)
        h = parts_[i].sublayer->forward(c, parts_[i].norm->forward(c, h), h);
    parts_.back().sublayer->rebuild(c, parts_.back().norm->forward(c, h));
}

Flow PreNormBlock::backward(Ctx& c, Flow dout) const {
    Tensor dh = dout.hidden();
    const Scope temps(c.temp);
    for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) {
        const Tensor dx = part->sublayer->backward(c, dh);
        // dh becomes the gradient of what the sublayer before this one has written
        if (c.largest_of_gradient) dh = with_largest(c, dh, c.largest_of_gradient);
        dh = part->norm->backward(c, dx, dh);
    }
    return dh;
}

}  // namespace coeus
