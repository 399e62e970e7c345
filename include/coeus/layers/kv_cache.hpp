// SPDX-License-Identifier: Apache-2.0
// KvCache: the (rotated) keys and the values of layers for texts that are being generated, so that a new
// token costs the work of one row. A text has a slot of `context` rows. Two exchanges fill it:
//   PromptExchange   reads a whole text into an empty slot: rows 0 .. T - 1
//   CachedExchange   adds one token to each of several slots; it attends to all tokens before it
// Tensor-parallel ranks divide the rows between layers evenly, so a micro-batch may have more rows than texts
// need. They come last: they are not cached, attend to nothing, and nothing attends to them.
#pragma once

#include "coeus/layers/exchanges/kv_exchange.hpp"

namespace coeus {

class KvCache {
public:
    /// A cache without memory, for planning, of the layers from number `first_layer` on. The widths are those
    /// of the keys and of the values of all heads of this rank together.
    KvCache(int64_t layers, int64_t sequences, int64_t context, int64_t key_width, int64_t value_width,
            Dtype dtype, int64_t first_layer = 0);
    /// Allocates the memory.
    void allocate(const Memory& memory = host_memory());

    int64_t sequences() const { return sequences_; }
    int64_t context() const { return context_; }
    int64_t bytes() const { return keys_.bytes() + values_.bytes(); }

    /// The rows of one layer, by its number in the model, slot after slot: [sequences * context, key_width or
    /// value_width].
    Tensor keys(int64_t layer) const { return of_layer(keys_, layer); }
    Tensor values(int64_t layer) const { return of_layer(values_, layer); }

private:
    Tensor of_layer(Tensor all, int64_t layer) const;
    int64_t sequences_, context_, first_layer_;
    Buffer memory_;
    Tensor keys_, values_;  // of all layers, one after the other
};

/// The micro-batch is one sequence, which begins with the text in a slot.
class PromptExchange : public KvExchange {
public:
    /// `tokens`: those of the text; 0: there is no text, and the slot does not matter.
    PromptExchange(const KvCache& cache, int64_t slot, int64_t tokens)
        : cache_(&cache), slot_(slot), tokens_(tokens) {}
    void forward(Ctx& c, const AttentionTensors& t) const override;

private:
    const KvCache* cache_;
    int64_t slot_, tokens_;
};

/// The first sequences of the micro-batch are each the next token of a text. Its position is its row in the
/// slot.
class CachedExchange : public KvExchange {
public:
    /// `slots`: i32[texts], all different.
    CachedExchange(const KvCache& cache, Tensor slots) : cache_(&cache), slots_(slots) {}
    void forward(Ctx& c, const AttentionTensors& t) const override;

private:
    const KvCache* cache_;
    Tensor slots_;
};

}  // namespace coeus
