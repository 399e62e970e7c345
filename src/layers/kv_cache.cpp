// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/kv_cache.hpp"

namespace coeus {

KvCache::KvCache(int64_t layers, int64_t sequences, int64_t context, int64_t key_width, int64_t value_width,
                 Dtype dtype, int64_t first_layer)
    : sequences_(sequences),
      context_(context),
      first_layer_(first_layer),
      keys_(nullptr, dtype, {layers * sequences * context, key_width}),
      values_(nullptr, dtype, {layers * sequences * context, value_width}) {}

void KvCache::allocate(const Memory& memory) {
    memory_ = Buffer(bytes(), "key/value cache", memory);
    keys_.data = memory_.data();
    values_.data = memory_.data() + keys_.bytes();
}

Tensor KvCache::of_layer(Tensor all, int64_t layer) const {
    return all.slice_rows((layer - first_layer_) * sequences_ * context_, sequences_ * context_);
}

namespace {

// The rows [0, count) of these tensors. Kernels take a dense lse, so it is at the beginning of its memory.
// The other rows of out become 0.
AttentionTensors first_rows(Ctx& c, const AttentionTensors& t, int64_t count) {
    const int64_t others = t.out.rows() - count;
    require(others >= 0, "a micro-batch has fewer rows than its texts");
    if (others == 0) return t;
    c.k.zero(c.exec, t.out.slice_rows(count, others));
    AttentionTensors first = t;
    for (Tensor* tensor : {&first.out, &first.q, &first.k, &first.v}) *tensor = tensor->slice_rows(0, count);
    first.lse = Tensor(t.lse.data, t.lse.dtype, {t.lse.rows(), count});
    return first;
}

}  // namespace

void PromptExchange::forward(Ctx& c, const AttentionTensors& t) const {
    require(t.shape.batch == 1 && tokens_ <= cache_->context(), "a text does not fit into its slot");
    AttentionTensors text = first_rows(c, t, tokens_);
    if (tokens_ == 0) return;
    text.shape.sequence = tokens_;
    const int64_t first = slot_ * cache_->context();
    c.k.cast(c.exec, cache_->keys(t.layer).slice_rows(first, tokens_), text.k);
    c.k.cast(c.exec, cache_->values(t.layer).slice_rows(first, tokens_), text.v);
    c.k.attention(c.exec, text.out, text.lse, text.q, text.k, text.v, {}, text.shape);
    add_sinks(c, text.out, text.lse, text.sinks);
}

void CachedExchange::forward(Ctx& c, const AttentionTensors& t) const {
    require(t.shape.sequence == 1, "a cache takes one token of each text at a time");
    const int64_t count = slots_.count();
    AttentionTensors texts = first_rows(c, t, count);
    if (count == 0) return;
    texts.shape.batch = count;
    texts.shape.sequence = cache_->context();
    c.k.attention_cached(c.exec, texts.out, texts.lse, cache_->keys(t.layer), cache_->values(t.layer),
                         texts.q, texts.k, texts.v, slots_, c.batch.positions.slice_rows(0, count),
                         texts.shape);
    add_sinks(c, texts.out, texts.lse, texts.sinks);
}

}  // namespace coeus
