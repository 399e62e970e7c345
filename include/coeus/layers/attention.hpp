// SPDX-License-Identifier: Apache-2.0
// Attention: grouped-query causal self-attention (Vaswani et al. 2017; Ainslie et al. 2023), with a sink for
// each head if it has them (exchanges/kv_exchange.hpp applies them).
#pragma once

#include "coeus/layers/exchanges/kv_exchange.hpp"
#include "coeus/layers/head_steps.hpp"
#include "coeus/layers/linear.hpp"
#include "coeus/layers/sublayer.hpp"

namespace coeus {

/// The attention heads of a rank, which tokens they attend to, and the layer's number.
struct AttentionHeads {
    int64_t heads = 1, kv_heads = 1;  ///< on this rank: tensor-parallel ranks divide them
    int64_t head_dim = 1;             ///< width of a head of queries and keys
    int64_t value_dim = 0;            ///< width of a head of values and of the output; 0: head_dim
    double scale = 0;                 ///< factor of the scores; 0: head_dim^-1/2
    int64_t window = 0, chunk = 0;    ///< see AttentionShape
    int64_t layer = 0;                ///< number of the block, which is its place in a cache

    int64_t value_width() const { return value_dim ? value_dim : head_dim; }
    int64_t query_cols() const { return heads * head_dim; }
    int64_t key_cols() const { return kv_heads * head_dim; }
    int64_t value_cols() const { return kv_heads * value_width(); }
};

class Attention : public Sublayer {
public:
    /// `wqkv`: [wq; wk; wv] stacked by rows, [H d + K d + K e, D]. `wo`: [D, H e]. `steps`: for the heads of
    /// queries and keys. `sinks`: [H], or null.
    Attention(const ColLinear& wqkv, const RowLinear& wo, const AttentionHeads& heads, HeadSteps::List steps,
              const Storage* sinks = nullptr)
        : wqkv_(wqkv), wo_(wo), heads_(heads), steps_(std::move(steps)), sinks_(sinks) {}

    Tensor forward(Ctx& c, Tensor x, Tensor residual) const override;
    void rebuild(Ctx& c, Tensor x) const override;
    Tensor backward(Ctx& c, Tensor dy) const override;

private:
    Tensor attend(Ctx& c, Tensor x) const;
    AttentionTensors tensors(const Batch& batch, Tensor queries_and_keys, Tensor values, Tensor out,
                             Tensor lse) const;
    ColLinear wqkv_;
    RowLinear wo_;
    AttentionHeads heads_;
    HeadSteps steps_;
    const Storage* sinks_;
};

}  // namespace coeus
