// SPDX-License-Identifier: Apache-2.0
// LatentAttention: multi-head latent attention (DeepSeek-AI 2024, DeepSeek-V2, section 2.1). Keys and values
// come from a latent vector for each token, so that tensor-parallel ranks exchange only latents. A head of a
// query or key has columns without RoPE, then columns with RoPE. The latter are the same key for all heads.
#pragma once

#include "coeus/layers/exchanges/kv_exchange.hpp"
#include "coeus/layers/linear.hpp"
#include "coeus/layers/rope_table.hpp"
#include "coeus/layers/sublayer.hpp"

namespace coeus {

/// The sizes of the layer. A head of queries and keys is nope + rope wide.
struct LatentHeads {
    LatentShape shape;     ///< the heads of this rank: tensor-parallel ranks divide them
    int64_t q_rank = 0;    ///< width of the queries' latents; 0: queries come from the input
    int64_t kv_rank = 1;   ///< width of the latents of keys and values
    NormForm norm = 1e-6;  ///< of both norms
    double scale = 1;      ///< factor of the scores
    RopeLayout layout = RopeLayout::interleaved;
    int64_t window = 0;  ///< see AttentionShape
    int64_t layer = 0;   ///< number of the block, which is its place in a cache
};

class LatentAttention : public Sublayer {
public:
    struct Weights {
        /// [wq_a; wkv_a], [q_rank + kv_rank + rope, D]; wq_a only if q_rank > 0.
        TokenLinear down;
        /// The norms of the latents: of queries, [q_rank], or null; of keys and values, [kv_rank].
        const Storage *q_norm, *kv_norm;
        /// [H (nope + rope), q_rank], or of the input, [H (nope + rope), D]; and [H (nope + value), kv_rank].
        ColLinear q, kv;
        RowLinear wo;  ///< [D, H value]
    };
    /// The table must outlive the layer.
    LatentAttention(const Weights& weights, const RopeTable& table, const LatentHeads& heads)
        : w_(weights), table_(&table), heads_(heads) {}

    Tensor forward(Ctx& c, Tensor x, Tensor residual) const override;
    void rebuild(Ctx& c, Tensor x) const override;
    Tensor backward(Ctx& c, Tensor dy) const override;

private:
    Tensor attend(Ctx& c, Tensor x) const;
    void rotate(Ctx& c, Tensor q, Tensor pe, bool inverse) const;
    AttentionTensors tensors(Ctx& c, Tensor q, Tensor kv, Tensor pe, Tensor out, Tensor lse) const;
    Weights w_;
    const RopeTable* table_;
    LatentHeads heads_;
};

}  // namespace coeus
