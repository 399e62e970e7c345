// SPDX-License-Identifier: Apache-2.0
// Attention whose heads of queries share heads of keys and values in groups (Ainslie et al. 2023, GQA); with
// as many of one as of the other it is that of Vaswani et al. 2017.
#pragma once

#include "coeus/layers/position_tables.hpp"
#include "coeus/models/config_field.hpp"
#include "coeus/models/parts/head_sizes.hpp"

#include <array>
#include <memory>
#include <span>
#include <vector>

namespace coeus {

class Declare;
class LinearInput;
class Sublayer;
struct HubName;
struct Param;

/// RMSNorm of each head of queries and keys: before RoPE and with a weight (Qwen 3); after RoPE and without
/// one, in layers that have RoPE (Llama 4); or after RoPE and with one (HunYuan). Or of the queries of all
/// heads together, and of the keys, before RoPE and with a weight (OLMo 2).
enum class QkNorm : uint8_t { none, before_rope, after_rope, weighted_after_rope, all_heads };
/// Which projections of attention have a bias: none; those of queries, keys and values (Qwen 2); all four
/// (gpt-oss); that of the output alone, which Seed-OSS may have.
enum class AttentionBias : uint8_t { none, qkv, all, out };

constexpr auto names_of(QkNorm) {
    return std::array{EnumName<QkNorm>{"none", QkNorm::none},
                      EnumName<QkNorm>{"before_rope", QkNorm::before_rope},
                      EnumName<QkNorm>{"after_rope", QkNorm::after_rope},
                      EnumName<QkNorm>{"weighted_after_rope", QkNorm::weighted_after_rope},
                      EnumName<QkNorm>{"all_heads", QkNorm::all_heads}};
}
constexpr auto names_of(AttentionBias) {
    return std::array{EnumName<AttentionBias>{"none", AttentionBias::none},
                      EnumName<AttentionBias>{"qkv", AttentionBias::qkv},
                      EnumName<AttentionBias>{"all", AttentionBias::all},
                      EnumName<AttentionBias>{"out", AttentionBias::out}};
}

struct GroupedAttentionConfig {
    int64_t heads = 0, kv_heads = 0;  ///< on all tensor-parallel ranks together
    int64_t head_dim = 0;             ///< width of a head of queries and keys
    int64_t value_dim = 0;            ///< width of a head of values and of the output; 0: head_dim
    QkNorm qk_norm = QkNorm::none;
    AttentionBias bias = AttentionBias::none;
    bool sinks = false;        ///< a learned score for each head, with a value of zeros
    double scale = 0;          ///< factor of the scores; 0: head_dim^-1/2
    int64_t window = 0;        ///< tokens that a query attends to, with itself; 0: all before it
    int64_t chunk = 0;         ///< a query attends to tokens of its own chunk of so many; 0: to all before it
    double rope_fraction = 1;  ///< the part of a head's columns that RoPE rotates, the first ones
    Temperature temperature;   ///< of the layers without RoPE
    bool temperature_everywhere = false;  ///< the layers with RoPE have it too
    // These two are not fields of the model. They follow from its without_rope, windowed and window_rope.
    bool rope = true;       ///< positions rotate queries and keys
    size_t rope_table = 0;  ///< the number of their table (DecoderConfig::ropes)

    /// Columns of a head that RoPE rotates. A product that is not whole is rounded down, as in transformers.
    int64_t rotated_dim() const { return int64_t(double(head_dim) * rope_fraction); }
    int64_t value_head_dim() const { return value_dim ? value_dim : head_dim; }
    /// Columns of all heads' queries, of all heads' keys, of all heads' values, and of all heads' outputs.
    int64_t query_width() const { return heads * head_dim; }
    int64_t key_width() const { return kv_heads * head_dim; }
    int64_t value_width() const { return kv_heads * value_head_dim(); }
    int64_t output_width() const { return heads * value_head_dim(); }
    HeadSizes sizes() const { return {heads, kv_heads, head_dim, value_head_dim(), rotated_dim(), window}; }
    bool operator==(const GroupedAttentionConfig&) const = default;
};

template <class Visit>
void for_each_field(ConfigOf<GroupedAttentionConfig> auto& a, Visit&& visit) {
    using enum FieldKind;
    visit(head_field::heads, a.heads);
    visit(head_field::kv_heads, a.kv_heads);
    visit(head_field::head_dim, a.head_dim);
    visit(head_field::value_dim, a.value_dim);
    visit(ConfigField{.name = "partial_rotary_factor", .kind = constant, .is_later = true, .usual = "1"},
          a.rope_fraction);
    visit(ConfigField{.name = "qk_norm", .is_later = true}, a.qk_norm);
    visit(ConfigField{.name = "attention_bias", .is_later = true}, a.bias);
    visit(ConfigField{.name = "attention_sinks", .is_later = true}, a.sinks);
    visit(ConfigField{.name = "attention_scale",
                      .kind = constant,
                      .is_later = true,
                      .may_be_zero = true,
                      .usual = "0, which means head_dim^-1/2"},
          a.scale);
    visit(head_field::window, a.window);
    visit(ConfigField{.name = "attention_chunk", .kind = constant, .is_later = true, .least = 0}, a.chunk);
    visit(ConfigField{.name = "temperature_scale",
                      .kind = constant,
                      .is_later = true,
                      .may_be_zero = true,
                      .usual = "0.1"},
          a.temperature.scale);
    visit(ConfigField{.name = "temperature_floor", .kind = constant, .is_later = true, .usual = "8192"},
          a.temperature.floor);
    visit(ConfigField{.name = "temperature_offset", .kind = constant, .is_later = true, .least = 0},
          a.temperature.offset);
    visit(ConfigField{.name = "temperature_everywhere", .kind = constant, .is_later = true},
          a.temperature_everywhere);
}

/// ConfigError naming the field, the rule and the nearest valid value. `dim`: width of the model.
void require_valid(const GroupedAttentionConfig& attention, int64_t dim);

/// The weights that multiply the input.
std::vector<Param> first_weights(const Declare& declare, const GroupedAttentionConfig& attention);
/// Declares the parameters, with torchtitan's names, and builds the layer. `tables` must outlive it.
std::unique_ptr<Sublayer> build_attention(const Declare& declare, const GroupedAttentionConfig& attention,
                                          const PositionTables& tables, LinearInput input);

/// Its tensors in usual Hugging Face folders.
std::span<const HubName> grouped_attention_hub_names();

}  // namespace coeus
