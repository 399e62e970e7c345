// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/kv_exchange.hpp"

namespace coeus {

void KvExchange::backward(Ctx&, const AttentionTensors&, Tensor) const {
    throw LogicError("attention over a cache has no backward");
}

void LocalExchange::forward(Ctx& c, const AttentionTensors& t) const {
    c.k.attention(c.exec, t.out, t.lse, t.q, t.k, t.v, c.batch.document_start, t.shape);
}

void LocalExchange::backward(Ctx& c, const AttentionTensors& t, Tensor dout) const {
    c.k.attention_backward(c.exec, t.q, t.k, t.v, dout, t.out, t.lse, t.q, t.k, t.v, c.batch.document_start,
                           t.shape, false);
}

const KvExchange& local_exchange() {
    static const LocalExchange local;
    return local;
}

}  // namespace coeus
