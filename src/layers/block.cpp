// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/block.hpp"

namespace coeus {

Flow DenseBlock::forward(Ctx& c, Flow in) const {
    const Tensor x = in.hidden();
    const Scope temps(c.temp);
    const Tensor h = attention_.forward(c, attention_norm_->forward(c, x), x);
    return feed_forward_.forward(c, ffn_norm_->forward(c, h), h);
}

void DenseBlock::rebuild(Ctx& c, Flow in) const {
    const Tensor x = in.hidden();
    const Scope temps(c.temp);
    const Tensor h = attention_.forward(c, attention_norm_->forward(c, x), x);
    feed_forward_.rebuild(c, ffn_norm_->forward(c, h));
}

Flow DenseBlock::backward(Ctx& c, Flow dout) const {
    const Tensor dy = dout.hidden();
    const Scope temps(c.temp);
    const Tensor dh = ffn_norm_->backward(c, feed_forward_.backward(c, dy), dy);
    return attention_norm_->backward(c, attention_.backward(c, dh), dh);
}

}  // namespace coeus
