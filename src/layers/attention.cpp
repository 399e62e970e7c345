// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/attention.hpp"

#include <cmath>

namespace coeus {

AttentionTensors Attention::tensors(const Batch& batch, Tensor qkv, Tensor out, Tensor lse) const {
    const int64_t q_cols = heads_.heads * heads_.head_dim, k_cols = heads_.kv_heads * heads_.head_dim;
    return {.layer = heads_.layer,
            .out = out,
            .lse = lse,
            .q = qkv.slice_cols(0, q_cols),
            .k = qkv.slice_cols(q_cols, k_cols),
            .v = qkv.slice_cols(q_cols + k_cols, heads_.kv_heads * heads_.value_width()),
            .shape = {.batch = batch.sequences,
                      .sequence = batch.seq_len,
                      .heads = heads_.heads,
                      .kv_heads = heads_.kv_heads,
                      .head_dim = heads_.head_dim,
                      .scale = 1 / std::sqrt(double(heads_.head_dim)),
                      .value_dim = heads_.value_dim}};
}

// Rotates the queries and keys in qkv together.
void Attention::rotate(Ctx& c, Tensor qkv, bool inverse) const {
    const int64_t rotated = (heads_.heads + heads_.kv_heads) * heads_.head_dim;
    c.k.rope(c.exec, qkv.slice_cols(0, rotated), rope_->view(), c.batch.positions, heads_.head_dim,
             heads_.rope_layout, inverse);
}

// Everything except the last product: [T/P, D] -> [T, H e], kept.
Tensor Attention::attend(Ctx& c, Tensor x) const {
    const Tensor qkv = wqkv_.forward(c, x);
    rotate(c, qkv, false);
    const Tensor out = c.frame.keep(x.dtype, {qkv.rows(), heads_.heads * heads_.value_width()});
    const Tensor lse = c.frame.keep(rope_->view().dtype, {heads_.heads, qkv.rows()});
    c.kv.forward(c, tensors(c.batch, qkv, out, lse));
    c.frame.push(this, qkv);
    c.frame.push(this, out);
    c.frame.push(this, lse);
    return out;
}

Tensor Attention::forward(Ctx& c, Tensor x, Tensor residual) const {
    return wo_.forward(c, attend(c, x), residual);
}

void Attention::rebuild(Ctx& c, Tensor x) const {
    wo_.rebuild(c, attend(c, x));
}

Tensor Attention::backward(Ctx& c, Tensor dy) const {
    const Tensor dout = wo_.backward(c, dy);
    const Tensor lse = c.frame.pop(this), out = c.frame.pop(this), qkv = c.frame.pop(this);
    // the gradients overwrite q, k and v
    c.kv.backward(c, tensors(c.batch, qkv, out, lse), dout);
    rotate(c, qkv, true);
    return wqkv_.backward(c, qkv);
}

}  // namespace coeus
