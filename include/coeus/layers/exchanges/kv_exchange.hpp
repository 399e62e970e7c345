// SPDX-License-Identifier: Apache-2.0
// KvExchange: where attention gets the keys and values for its queries. The layer itself has no state. The
// context decides whether they are only those of the micro-batch, also those of the ranks with other parts
// of its sequences (context_parallel.hpp), or those of a cache (kv_cache.hpp).
#pragma once

#include "coeus/layers/context.hpp"

namespace coeus {

/// The tensors of one attention layer for a micro-batch: q [T, H d], k [T, K d], v [T, K e], out [T, H e],
/// lse [H, T] (acc). q and k are those that are compared, so they are rotated. The sinks and their gradient
/// [H] (acc) may be absent.
struct AttentionTensors {
    int64_t layer;
    Tensor out, lse, q, k, v;
    AttentionShape shape;
    Tensor sinks = {}, dsinks = {};
};

class KvExchange {
public:
    virtual ~KvExchange() = default;
    /// Computes out and lse.
    virtual void forward(Ctx& c, const AttentionTensors& t) const = 0;
    /// Overwrites q, k and v by their gradients, and adds to dsinks. LogicError if the exchange has no
    /// backward (generation).
    virtual void backward(Ctx& c, const AttentionTensors& t, Tensor dout) const;
};

/// Adds the sinks, if there are any, to attention over all keys; and their gradient.
void add_sinks(Ctx& c, Tensor out, Tensor lse, Tensor sinks);
void add_sinks_backward(Ctx& c, Tensor dsinks, Tensor dout, Tensor out, Tensor lse, Tensor sinks);

/// Only the keys and values of the micro-batch.
class LocalExchange : public KvExchange {
public:
    void forward(Ctx& c, const AttentionTensors& t) const override;
    void backward(Ctx& c, const AttentionTensors& t, Tensor dout) const override;
};

}  // namespace coeus
