// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/exchanges/kv_exchange.hpp"

namespace coeus {

void KvExchange::backward(Ctx&, const AttentionTensors&, Tensor) const {
    throw LogicError("attention over a cache has no backward");
}

void add_sinks(Ctx& c, Tensor out, Tensor lse, Tensor sinks) {
    if (sinks) c.k.attention_sink(c.exec, out, lse, sinks);
}

void add_sinks_backward(Ctx& c, Tensor dsinks, Tensor dout, Tensor out, Tensor lse, Tensor sinks) {
    if (dsinks) c.k.attention_sink_backward(c.exec, dsinks, dout, out, lse, sinks);
}

void LocalExchange::forward(Ctx& c, const AttentionTensors& t) const {
    c.k.attention(c.exec, t.out, t.lse, t.q, t.k, t.v, c.batch.document_start, t.shape);
    add_sinks(c, t.out, t.lse, t.sinks);
}

void LocalExchange::backward(Ctx& c, const AttentionTensors& t, Tensor dout) const {
    add_sinks_backward(c, t.dsinks, dout, t.out, t.lse, t.sinks);
    c.k.attention_backward(c.exec, t.q, t.k, t.v, dout, t.out, t.lse, t.q, t.k, t.v, c.batch.document_start,
                           t.shape, false);
}

const KvExchange& local_exchange() {
    static const LocalExchange local;
    return local;
}

}  // namespace coeus
