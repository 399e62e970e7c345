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

AttentionTensors Attention::tensors(const Batch& batch, Tensor qkv, Tensor out, Tensor lse) const {
    const Heads heads(qkv, config_);
    return {.layer = config_.layer,
            .out = out,
            .lse = lse,
            .q = heads.q,
            .k = heads.k,
            .v = heads.v,
            .shape = {.batch = batch.sequences,
                      .sequence = batch.seq_len,
                      .heads = config_.heads,
                      .kv_heads = config_.kv_heads,
                      .head_dim = config_.head_dim,
                      .scale = 1 / std::sqrt(double(config_.head_dim))}};
}

Tensor Attention::forward(Ctx& c, Tensor x, Tensor residual) const {
    Tensor qkv = wqkv_.forward(c, x);
    c.k.rope(c.exec, Heads(qkv, config_).rotated, rope_->view(), c.batch.positions, config_.head_dim,
             config_.rope_layout, false);
    Tensor out = c.frame.keep(x.dtype, {qkv.rows(), config_.heads * config_.head_dim});
    Tensor lse = c.frame.keep(rope_->view().dtype, {config_.heads, qkv.rows()});
    c.kv.forward(c, tensors(c.batch, qkv, out, lse));
    c.frame.push(this, qkv);
    c.frame.push(this, out);
    c.frame.push(this, lse);
    return wo_.forward(c, out, residual);
}

Tensor Attention::backward(Ctx& c, Tensor dy) const {
    const Tensor dout = wo_.backward(c, dy);
    const Tensor lse = c.frame.pop(this), out = c.frame.pop(this), qkv = c.frame.pop(this);
    // the gradients take the place of q, k and v
    c.kv.backward(c, tensors(c.batch, qkv, out, lse), dout);
    c.k.rope(c.exec, Heads(qkv, config_).rotated, rope_->view(), c.batch.positions, config_.head_dim,
             config_.rope_layout, true);
    return wqkv_.backward(c, qkv);
}

}  // namespace coeus
