// SPDX-License-Identifier: Apache-2.0
// KvExchange: where attention gets the keys and values for its queries. The layer itself has no state. The
// context decides whether they are only those of the micro-batch, also those of the ranks with other parts
// of its sequences (context_parallel.hpp), or those of a cache (kv_cache.hpp).
#pragma once

#include "coeus/layers/context.hpp"

namespace coeus {

/// The tensors of one attention layer for a micro-batch: q [T, H d], k [T, K d], v [T, K e], out [T, H e],
/// lse [H, T] (acc). q and k are rotated.
struct AttentionTensors {
    int64_t layer;
    Tensor out, lse, q, k, v;
    AttentionShape shape;
};

class KvExchange {
public:
    virtual ~KvExchange() = default;
    /// Computes out and lse.
    virtual void forward(Ctx& c, const AttentionTensors& t) const = 0;
    /// Overwrites q, k and v by their gradients. LogicError if the exchange has no backward (generation).
    virtual void backward(Ctx& c, const AttentionTensors& t, Tensor dout) const;
};

/// Only the keys and values of the micro-batch.
class LocalExchange : public KvExchange {
public:
    void forward(Ctx& c, const AttentionTensors& t) const override;
    void backward(Ctx& c, const AttentionTensors& t, Tensor dout) const override;
};

}  // namespace coeus
