// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/mtp_layer.hpp"

namespace coeus {

Flow MtpLayer::forward(Ctx& c, Flow in) const {
    const Tensor h = in.all()[0], e = in.all()[1];
    c.frame.push(this, e);
    const Scope temps(c.temp);
    Tensor x = parts_.of_embedding.forward(c, parts_.enorm->forward(c, e), e.dtype);
    x = parts_.of_hidden.forward(c, parts_.hnorm->forward(c, h), h.dtype, x);
    return parts_.norm->forward(c, parts_.block->forward(c, x).hidden());
}

Flow MtpLayer::backward(Ctx& c, Flow dout) const {
    Tensor dh = dout.hidden();
    dh.largest = nullptr;
    const Scope temps(c.temp);
    const Tensor dx = parts_.block->backward(c, parts_.norm->backward(c, dh, {})).hidden();
    const Tensor of_h = parts_.hnorm->backward(c, parts_.of_hidden.backward(c, dx), {}),
                 of_e = parts_.enorm->backward(c, parts_.of_embedding.backward(c, dx), {});
    const Tensor de = c.frame.pop(this);
    c.k.cast(c.exec, de, of_e);
    c.k.cast(c.exec, dh, of_h);
    return Flow({dh, de});
}

}  // namespace coeus
