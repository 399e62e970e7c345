// SPDX-License-Identifier: Apache-2.0
// Latent attention as a part of a model: its fields, and what builds the layer
// (layers/latent_attention.hpp). All its layers have RoPE.
#pragma once

#include "coeus/layers/position_tables.hpp"
#include "coeus/models/config_field.hpp"
#include "coeus/models/parts/head_sizes.hpp"

#include <concepts>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace coeus {

class Declare;
class LinearInput;
class Sublayer;
struct HubName;
struct Param;

struct LatentAttentionConfig {
    int64_t heads = 0;      ///< on all tensor-parallel ranks together; each has its own keys and values
    int64_t head_dim = 0;   ///< width of a head of queries and keys
    int64_t value_dim = 0;  ///< width of a head of values and of the output; 0: head_dim
    int64_t kv_rank = 0;    ///< width of the latents of keys and values
    int64_t q_rank = 0;     ///< width of the queries' latents; 0: queries come from the input
    int64_t rope_dim = 0;   ///< the last columns of a head, which RoPE rotates; 0: all
    double latent_norm_eps = 1e-6;  ///< epsilon of the norms of latents
    int64_t window = 0;             ///< tokens that a query attends to, with itself; 0: all before it
    std::optional<int64_t> other_kv_heads = {};  ///< if there are not as many as heads, which is not valid

    int64_t rotated_dim() const { return rope_dim ? rope_dim : head_dim; }
    int64_t value_head_dim() const { return value_dim ? value_dim : head_dim; }
    /// Columns of all heads' queries, and of all heads' outputs.
    int64_t query_width() const { return heads * head_dim; }
    int64_t output_width() const { return heads * value_head_dim(); }
    HeadSizes sizes() const { return {heads, heads, head_dim, value_head_dim(), rotated_dim(), window}; }
    bool operator==(const LatentAttentionConfig&) const = default;
};

/// Descriptions, decks and config.json have a number of key/value heads too.
template <class Visit>
void for_each_field(ConfigOf<LatentAttentionConfig> auto& a, Visit&& visit) {
    using enum FieldKind;
    visit(head_field::heads, a.heads);
    int64_t kv_heads = a.other_kv_heads.value_or(a.heads);
    visit(head_field::kv_heads, kv_heads);
    if constexpr (std::same_as<decltype(a), LatentAttentionConfig&>)
        a.other_kv_heads = kv_heads == a.heads ? std::nullopt : std::optional(kv_heads);
    visit(head_field::head_dim, a.head_dim);
    visit(head_field::value_dim, a.value_dim);
    visit(ConfigField{.name = "kv_lora_rank", .is_later = true}, a.kv_rank);
    visit(ConfigField{.name = "q_lora_rank", .is_later = true, .least = 0}, a.q_rank);
    visit(ConfigField{.name = "qk_rope_head_dim", .is_later = true, .least = 0}, a.rope_dim);
    visit(ConfigField{.name = "latent_norm_eps", .kind = constant, .is_later = true, .usual = "1e-6"},
          a.latent_norm_eps);
    visit(head_field::window, a.window);
}

/// ConfigError naming the field, the rule and the nearest valid value. `dim`: width of the model.
void require_valid(const LatentAttentionConfig& attention, int64_t dim);

/// The weights that multiply the input.
std::vector<Param> first_weights(const Declare& declare, const LatentAttentionConfig& attention);
/// Declares the parameters, with torchtitan's names, and builds the layer. `tables` must outlive it.
std::unique_ptr<Sublayer> build_attention(const Declare& declare, const LatentAttentionConfig& attention,
                                          const PositionTables& tables, LinearInput input);

/// Its tensors in Hugging Face folders of DeepSeek V2 and V3.
std::span<const HubName> latent_attention_hub_names();

}  // namespace coeus
