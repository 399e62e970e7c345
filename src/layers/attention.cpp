// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/attention.hpp"

#include <cmath>

namespace coeus {

namespace {

// Views of qkv[T, (H + 2K) d].
struct Heads {
    Tensor q, k, v, rotated;  // rotated: q and k together

    Heads(Tensor qkv, const AttentionConfig& config) {
        const int64_t q_cols = config.heads * config.head_dim, kv_cols = config.kv_heads * config.head_dim;
        q = qkv.slice_cols(0, q_cols);
        k = qkv.slice_cols(q_cols, kv_cols);
        v = qkv.slice_cols(q_cols + kv_cols, kv_cols);
        rotated = qkv.slice_cols(0, q_cols + kv_cols);
    }
};

}  // namespace

AttentionShape Attention::shape(const Batch& batch) const {
    return {.batch = batch.sequences,
            .sequence = batch.seq_len,
            .heads = config_.heads,
            .kv_heads = config_.kv_heads,
            .head_dim = config_.head_dim,
            .scale = 1 / std::sqrt(double(config_.head_dim))};
}

Tensor Attention::forward(Ctx& c, Tensor x, Tensor residual) const {
    Tensor qkv = wqkv_.forward(c, x);
    const Heads heads(qkv, config_);
    c.k.rope(c.exec, heads.rotated, rope_->view(), c.batch.positions, config_.head_dim, config_.rope_layout,
             false);
    Tensor out = c.frame.keep(x.dtype, {x.rows(), heads.q.cols()});
    Tensor lse = c.frame.keep(rope_->view().dtype, {config_.heads, x.rows()});
    c.k.attention(c.exec, out, lse, heads.q, heads.k, heads.v, c.batch.document_start, shape(c.batch));
    c.frame.push(this, qkv);
    c.frame.push(this, out);
    c.frame.push(this, lse);
    return wo_.forward(c, out, residual);
}

Tensor Attention::backward(Ctx& c, Tensor dy) const {
    const Tensor dout = wo_.backward(c, dy);
    const Tensor lse = c.frame.pop(this), out = c.frame.pop(this), qkv = c.frame.pop(this);
    const Heads heads(qkv, config_);
    // the gradients take the place of q, k and v
    c.k.attention_backward(c.exec, heads.q, heads.k, heads.v, dout, out, lse, heads.q, heads.k, heads.v,
                           c.batch.document_start, shape(c.batch));
    c.k.rope(c.exec, heads.rotated, rope_->view(), c.batch.positions, config_.head_dim, config_.rope_layout,
             true);
    return wqkv_.backward(c, qkv);
}

}  // namespace coeus
