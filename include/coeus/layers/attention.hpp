// SPDX-License-Identifier: Apache-2.0
// Attention: grouped-query causal self-attention with rotary positions (Vaswani et al. 2017; Ainslie et al.
// 2023; Su et al. 2021).
#pragma once

#include "coeus/layers/kv_exchange.hpp"
#include "coeus/layers/linear.hpp"
#include "coeus/layers/rope_table.hpp"
#include "coeus/layers/sublayer.hpp"

namespace coeus {

/// The attention heads of a rank, and the layer's number.
struct AttentionHeads {
    int64_t heads = 1, kv_heads = 1;  ///< on this rank: tensor-parallel ranks divide them
    int64_t head_dim = 1;             ///< width of a head of queries and keys
    int64_t value_dim = 0;            ///< width of a head of values and of the output; 0: head_dim
    RopeLayout rope_layout = RopeLayout::interleaved;
    int64_t layer = 0;  ///< number of the block, which is its place in a cache

    int64_t value_width() const { return value_dim ? value_dim : head_dim; }
};

class Attention : public Sublayer {
public:
    /// `wqkv`: [wq; wk; wv] stacked by rows, [H d + K d + K e, D]. `wo`: [D, H e]. `input`: the input of
    /// wqkv. The RoPE table must outlive the layer.
    Attention(const Storage& wqkv, const Storage& wo, const AttentionHeads& heads, const RopeTable& rope,
              LinearInput input = {})
        : wqkv_(wqkv, input), wo_(wo), heads_(heads), rope_(&rope) {}

    Tensor forward(Ctx& c, Tensor x, Tensor residual) const override;
    void rebuild(Ctx& c, Tensor x) const override;
    Tensor backward(Ctx& c, Tensor dy) const override;

private:
    Tensor attend(Ctx& c, Tensor x) const;
    void rotate(Ctx& c, Tensor qkv, bool inverse) const;
    AttentionTensors tensors(const Batch& batch, Tensor qkv, Tensor out, Tensor lse) const;
    ColLinear wqkv_;
    RowLinear wo_;
    AttentionHeads heads_;
    const RopeTable* rope_;
};

}  // namespace coeus
