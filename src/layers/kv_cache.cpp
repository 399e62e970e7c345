// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/kv_cache.hpp"

namespace coeus {

KvCache::KvCache(int64_t layers, int64_t sequences, int64_t context, int64_t key_width, int64_t value_width,
                 Dtype dtype)
    : sequences_(sequences),
      context_(context),
      keys_(nullptr, dtype, {layers * sequences * context, key_width}),
      values_(nullptr, dtype, {layers * sequences * context, value_width}) {}

void KvCache::allocate(const Memory& memory) {
    memory_ = Buffer(bytes(), "key/value cache", memory);
    keys_.data = memory_.data();
    values_.data = memory_.data() + keys_.bytes();
}

Tensor KvCache::of_layer(Tensor all, int64_t layer) const {
    return all.slice_rows(layer * sequences_ * context_, sequences_ * context_);
}

void PromptExchange::forward(Ctx& c, const AttentionTensors& t) const {
    require(t.shape.batch == 1 && t.shape.sequence <= cache_->context(), "a text does not fit into its slot");
    const int64_t first = slot_ * cache_->context(), rows = t.shape.sequence;
    c.k.cast(c.exec, cache_->keys(t.layer).slice_rows(first, rows), t.k);
    c.k.cast(c.exec, cache_->values(t.layer).slice_rows(first, rows), t.v);
    c.k.attention(c.exec, t.out, t.lse, t.q, t.k, t.v, {}, t.shape);
    add_sinks(c, t.out, t.lse, t.sinks);
}

void CachedExchange::forward(Ctx& c, const AttentionTensors& t) const {
    require(t.shape.sequence == 1, "a cache takes one token of each text at a time");
    AttentionShape shape = t.shape;
    shape.sequence = cache_->context();
    c.k.attention_cached(c.exec, t.out, t.lse, cache_->keys(t.layer), cache_->values(t.layer), t.q, t.k, t.v,
                         slots_, c.batch.positions, shape);
    add_sinks(c, t.out, t.lse, t.sinks);
}

}  // namespace coeus
