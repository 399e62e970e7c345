// SPDX-License-Identifier: Apache-2.0
// KvExchange: where attention finds the keys and values of its queries. The layer has no state of its own:
// the context says whether they are the micro-batch's alone, also those of the ranks that have other parts of
// its sequences (context_parallel.hpp), or those of a cache (kv_cache.hpp).
#pragma once

#include "coeus/layers/context.hpp"

namespace coeus {

/// One attention layer's tensors of a micro-batch: q [T, H d], k [T, K d], v [T, K e], out [T, H e], lse [H,
/// T] (acc); q and k are rotated.
struct AttentionTensors {
    int64_t layer;
    Tensor out, lse, q, k, v;
    AttentionShape shape;
};

class KvExchange {
public:
    virtual ~KvExchange() = default;
    /// Writes out and lse.
    virtual void forward(Ctx& c, const AttentionTensors& t) const = 0;
    /// The gradients of q, k and v take their place. LogicError where there is none (generation).
    virtual void backward(Ctx& c, const AttentionTensors& t, Tensor dout) const;
};

/// Keys and values of the micro-batch alone.
class LocalExchange : public KvExchange {
public:
    void forward(Ctx& c, const AttentionTensors& t) const override;
    void backward(Ctx& c, const AttentionTensors& t, Tensor dout) const override;
};

}  // namespace coeus
