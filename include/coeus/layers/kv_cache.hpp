// SPDX-License-Identifier: Apache-2.0
// KvCache: the (rotated) keys and the values of every layer for texts that are being generated, so that a new
// token costs the work of one row. A text has a slot of `context` rows. Two exchanges fill it:
//   PromptExchange   reads a whole text into an empty slot: rows 0 .. T - 1
//   CachedExchange   adds one token to each of several slots; it attends to all tokens before it
#pragma once

#include "coeus/layers/exchanges/kv_exchange.hpp"

namespace coeus {

class KvCache {
public:
    /// A cache without memory, for planning. The widths are those of the keys and of the values of all heads
    /// together.
    KvCache(int64_t layers, int64_t sequences, int64_t context, int64_t key_width, int64_t value_width,
            Dtype dtype);
    /// Allocates the memory.
    void allocate(const Memory& memory = host_memory());

    int64_t sequences() const { return sequences_; }
    int64_t context() const { return context_; }
    int64_t bytes() const { return keys_.bytes() + values_.bytes(); }

    /// The rows of one layer, slot after slot: [sequences * context, key_width or value_width].
    Tensor keys(int64_t layer) const { return of_layer(keys_, layer); }
    Tensor values(int64_t layer) const { return of_layer(values_, layer); }

private:
    Tensor of_layer(Tensor all, int64_t layer) const;
    int64_t sequences_, context_;
    Buffer memory_;
    Tensor keys_, values_;  // of all layers, one after the other
};

/// The micro-batch is one sequence, the beginning of the text in a slot.
class PromptExchange : public KvExchange {
public:
    PromptExchange(const KvCache& cache, int64_t slot) : cache_(&cache), slot_(slot) {}
    void forward(Ctx& c, const AttentionTensors& t) const override;

private:
    const KvCache* cache_;
    int64_t slot_;
};

/// Each sequence of the micro-batch is the next token of a text. Its position is its row in the slot.
class CachedExchange : public KvExchange {
public:
    /// `slots`: i32[sequences], all different.
    CachedExchange(const KvCache& cache, Tensor slots) : cache_(&cache), slots_(slots) {}
    void forward(Ctx& c, const AttentionTensors& t) const override;

private:
    const KvCache* cache_;
    Tensor slots_;
};

/// A context of layers that generate: `exchange` reads and fills a cache.
inline Ctx generating_context(const Workplace& at, const Batch& batch, const KvExchange& exchange) {
    return {.exec = at.exec,
            .k = at.k,
            .frame = at.frame,
            .temp = at.temp,
            .batch = batch,
            .scalars = at.scalars,
            .kv = exchange,
            .inputs = at.inputs};
}

}  // namespace coeus
