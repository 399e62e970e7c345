// SPDX-License-Identifier: Apache-2.0
#include "decoder_head.hpp"

namespace coeus {

void DecoderHead::forward(Ctx& c, Flow in) const {
    const Scope temps(c.temp);
    loss_.forward(c, norm_->forward(c, in.hidden()), c.batch.labels);
}

void DecoderHead::evaluate(Ctx& c, Flow in) const {
    const Scope temps(c.temp);
    loss_.evaluate(c, norm_->forward(c, in.hidden()), c.batch.labels);
}

void DecoderHead::predict(Ctx& c, Tensor out, Flow in) const {
    const Scope temps(c.temp);
    loss_.logits(c, out, norm_->forward(c, in.hidden()));
}

}  // namespace coeus
