// SPDX-License-Identifier: Apache-2.0
// Grouped-query causal self-attention with rotary positions (Vaswani et al. 2017; Ainslie et al. 2023; Su et
// al. 2021).
#pragma once

#include "coeus/layers/kv_exchange.hpp"
#include "coeus/layers/linear.hpp"
#include "coeus/layers/rope_table.hpp"

namespace coeus {

struct AttentionConfig {
    int64_t heads = 1, kv_heads = 1;  ///< of this rank: tensor-parallel ranks divide them
    int64_t head_dim = 1;
    RopeLayout rope_layout = RopeLayout::interleaved;
    int64_t layer = 0;  ///< number of the block, its place in a cache
};

class Attention {
public:
    /// `wqkv`: [wq; wk; wv] by rows, [(H + 2K) d, D]; `wo`: [D, H d]; `input`: of wqkv. The table outlives
    /// the layer.
    Attention(const Storage& wqkv, const Storage& wo, const AttentionConfig& config, const RopeTable& rope,
              LinearInput input = {})
        : wqkv_(wqkv, input), wo_(wo), config_(config), rope_(&rope) {}

    /// [T/P, D] -> residual + attention, [T/P, D], kept.
    Tensor forward(Ctx& c, Tensor x, Tensor residual) const;
    /// dy [T/P, D] -> gradient of x, [T/P, D], in temp.
    Tensor backward(Ctx& c, Tensor dy) const;

private:
    AttentionTensors tensors(const Batch& batch, Tensor qkv, Tensor out, Tensor lse) const;
    ColLinear wqkv_;
    RowLinear wo_;
    AttentionConfig config_;
    const RopeTable* rope_;
};

}  // namespace coeus
