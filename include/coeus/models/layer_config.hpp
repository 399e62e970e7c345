// SPDX-License-Identifier: Apache-2.0
// The configuration of one layer of a decoder. It is the same on all ranks, and all that a block is built
// from.
#pragma once

#include "coeus/kernels/routing.hpp"
#include "coeus/layers/position_tables.hpp"

namespace coeus {

/// RMSNorm of each head of queries and keys: before RoPE and with a weight (Qwen 3); or after RoPE and
/// without one, in layers that have RoPE (Llama 4).
enum class QkNorm : uint8_t { none, before_rope, after_rope };
/// Which projections of attention have a bias: none; those of queries, keys and values (Qwen 2); all four
/// (gpt-oss).
enum class AttentionBias : uint8_t { none, qkv, all };

struct AttentionConfig {
    int64_t heads = 0, kv_heads = 0;  ///< on all tensor-parallel ranks together
    int64_t head_dim = 0;             ///< width of a head of queries and keys
    int64_t value_dim = 0;            ///< width of a head of values and of the output; 0: head_dim
    QkNorm qk_norm = QkNorm::none;
    AttentionBias bias = AttentionBias::none;
    bool sinks = false;  ///< a learned score for each head, with a value of zeros
    int64_t window = 0;  ///< tokens that a query attends to, with itself; 0: all before it
    int64_t chunk = 0;   ///< a query attends to tokens of its own chunk of so many; 0: to all before it
    bool rope = true;    ///< positions rotate queries and keys
    /// The part of a head's columns that RoPE rotates, the first ones. Latent attention has rope_dim instead.
    double rope_fraction = 1;
    Temperature temperature;
    /// Latent attention (DeepSeek V2): width of the latents of keys and values. 0: there are none.
    int64_t kv_rank = 0;
    int64_t q_rank = 0;             ///< width of the queries' latents; 0: queries come from the input
    int64_t rope_dim = 0;           ///< the last columns of a head, which RoPE rotates; 0: all
    double latent_norm_eps = 1e-6;  ///< epsilon of the norms of latents

    bool is_latent() const { return kv_rank > 0; }
    /// Columns of a head that RoPE rotates. A product that is not whole is rounded down, as in transformers.
    int64_t rotated_dim() const { return rope_dim ? rope_dim : int64_t(double(head_dim) * rope_fraction); }
    int64_t value_head_dim() const { return value_dim ? value_dim : head_dim; }
    /// Columns of all heads' queries, of all heads' keys, and of all heads' values.
    int64_t query_width() const { return heads * head_dim; }
    int64_t key_width() const { return kv_heads * head_dim; }
    int64_t value_width() const { return kv_heads * value_head_dim(); }
    /// Columns of all heads' outputs.
    int64_t output_width() const { return heads * value_head_dim(); }
    bool operator==(const AttentionConfig&) const = default;
};

struct FeedForwardConfig {
    int64_t hidden = 0;  ///< width between the matrices

    bool operator==(const FeedForwardConfig&) const = default;
};

/// How a router makes scores of its logits.
enum class ScoreFunction : uint8_t { softmax, sigmoid };

/// A mixture of experts in the place of a feed-forward layer; see RouteOptions for the router's options.
struct MoeConfig {
    int64_t experts = 0;  ///< 0: none, the layer is dense
    int64_t top_k = 1;
    int64_t hidden = 0;         ///< width of an expert between its matrices
    int64_t shared_hidden = 0;  ///< width of the shared experts, which are one layer; 0: none
    ScoreFunction score = ScoreFunction::softmax;
    bool normalise = false;
    double scale = 1;
    int64_t groups = 1, kept_groups = 1;
    bool router_bias = false;  ///< the logits have a bias
    bool biases = false;       ///< both matrices of an expert have biases; needs gate.interleaved
    Gate gate;                 ///< the activation between both matrices of an expert; SwiGLU in most models
    /// The amount by which each step changes the biases that balance the loads (Wang et al. 2024).
    double balance_rate = 0;
    bool keeps_bias = false;  ///< these biases are there even if the rate is 0, and then stay as they are
    /// Coefficient of the loss that balances the experts within each sequence (DeepSeek-V3, eq. 17); 0: none.
    double sequence_balance = 0;
    bool round_robin = false;  ///< debug.moe_force_load_balance; not a field of the model

    bool has_balance_bias() const { return balance_rate > 0 || keeps_bias; }
    bool operator==(const MoeConfig&) const = default;
};

struct LayerConfig {
    AttentionConfig attention;
    FeedForwardConfig feed_forward;  ///< if the layer is dense
    MoeConfig moe;

    bool is_dense() const { return moe.experts == 0; }
    bool operator==(const LayerConfig&) const = default;
};

/// A regular choice of layers: those from number `first` on, each `period`-th. Period 0: none.
struct LayerPattern {
    int64_t period = 1, first = 0;

    bool has(int64_t layer) const { return period > 0 && layer >= first && (layer - first) % period == 0; }
    bool operator==(const LayerPattern&) const = default;
};

}  // namespace coeus
