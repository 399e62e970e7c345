// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/kv_exchange.hpp"

namespace coeus {

namespace {

class LocalExchange : public KvExchange {
public:
    void forward(Ctx& c, const AttentionTensors& t) const override {
        c.k.attention(c.exec, t.out, t.lse, t.q, t.k, t.v, c.batch.document_start, t.shape);
    }
    void backward(Ctx& c, const AttentionTensors& t, Tensor dout) const override {
        c.k.attention_backward(c.exec, t.q, t.k, t.v, dout, t.out, t.lse, t.q, t.k, t.v,
                               c.batch.document_start, t.shape);
    }
};

}  // namespace

void KvExchange::backward(Ctx&, const AttentionTensors&, Tensor) const {
    throw LogicError("attention over a cache has no backward");
}

const KvExchange& local_exchange() {
    static const LocalExchange local;
    return local;
}

}  // namespace coeus
