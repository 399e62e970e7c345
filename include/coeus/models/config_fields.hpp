// SPDX-License-Identifier: Apache-2.0
// The fields of a model's configuration, each listed once. Descriptions in checkpoints, options of decks
// ("model.<name>"), config.json of Hugging Face folders, comparisons and checks all use this list.
#pragma once

#include "coeus/models/decoder_config.hpp"

#include <concepts>
#include <functional>
#include <variant>
#include <vector>

namespace coeus {

enum class FieldKind : uint8_t {
    identity,  ///< the name of the model
    shape,     ///< determines shapes of weights
    constant,  ///< no shape depends on it, but the weights were trained with one value
    limit      ///< neither: the longest sequence, the rule for initial values, how experts are balanced
};

struct ConfigField {
    const char* name;           ///< in descriptions; the option "model.<name>" overrides it
    const char* hub = nullptr;  ///< usual key in config.json; null: the family's own code handles it
    FieldKind kind = FieldKind::shape;
    bool is_required = false;  ///< a description without it is damaged; others have defaults
    bool is_later = false;     ///< added after the first version: described only if it is not the default
    int64_t least = 1, most = int64_t(1) << 24;  ///< limits of an integer
    bool may_be_zero = false;                    ///< a real number; false: it must be greater than 0
    const char* usual = "";                      ///< usual value of a real number, for messages
};

/// Calls visit(ConfigField, value) for each field, in the order of descriptions. Values are std::string,
/// int64_t, double, bool, enumerations, RopeScaling.
template <class Config, class Visit>
void for_each_field(Config& c,
                    Visit&& visit) requires std::same_as<std::remove_const_t<Config>, DecoderConfig> {
    using enum FieldKind;
    const auto size = [](const char* name, const char* hub) {
        return ConfigField{.name = name, .hub = hub, .is_required = true};
    };
    visit(ConfigField{.name = "family", .kind = identity, .is_required = true}, c.family);
    visit(ConfigField{.name = "flavor", .kind = identity, .is_required = true}, c.flavor);
    visit(size("dim", "hidden_size"), c.dim);
    visit(ConfigField{.name = "n_layers", .hub = "num_hidden_layers", .is_required = true, .most = 1 << 16},
          c.layers);
    visit(size("n_heads", "num_attention_heads"), c.attention.heads);
    visit(size("n_kv_heads", "num_key_value_heads"), c.attention.kv_heads);
    // 0 if n_heads does not divide dim, which validate() reports
    visit(ConfigField{.name = "head_dim", .hub = "head_dim", .is_required = true, .least = 0},
          c.attention.head_dim);
    // 0 if all layers have experts, which validate() checks
    visit(ConfigField{.name = "ffn_hidden", .hub = "intermediate_size", .is_required = true, .least = 0},
          c.feed_forward.hidden);
    visit(ConfigField{.name = "vocab_size", .hub = "vocab_size", .is_required = true, .most = 0x7fffffff},
          c.vocab);
    visit(ConfigField{.name = "rope_theta", .kind = constant, .usual = "500000"}, c.rope.theta);
    visit(ConfigField{.name = "rope_scaling", .kind = constant}, c.rope.scaling);
    visit(ConfigField{.name = "norm_eps", .hub = "rms_norm_eps", .kind = constant, .usual = "1e-5"},
          c.norm_eps);
    visit(ConfigField{.name = "norm_type", .kind = constant}, c.norm_type);
    visit(ConfigField{.name = "tied_embeddings", .hub = "tie_word_embeddings"}, c.tied);
    visit(
        ConfigField{
            .name = "max_seq_len", .hub = "max_position_embeddings", .kind = limit, .most = int64_t(1) << 40},
        c.max_seq_len);
    visit(ConfigField{.name = "v_head_dim", .is_later = true, .least = 0}, c.attention.value_dim);
    visit(ConfigField{.name = "kv_lora_rank", .is_later = true, .least = 0}, c.attention.kv_rank);
    visit(ConfigField{.name = "q_lora_rank", .is_later = true, .least = 0}, c.attention.q_rank);
    visit(ConfigField{.name = "qk_rope_head_dim", .is_later = true, .least = 0}, c.attention.rope_dim);
    visit(ConfigField{.name = "partial_rotary_factor", .kind = constant, .is_later = true, .usual = "1"},
          c.attention.rope_fraction);
    visit(ConfigField{.name = "latent_norm_eps", .kind = constant, .is_later = true, .usual = "1e-6"},
          c.attention.latent_norm_eps);
    visit(ConfigField{.name = "rope_layout", .kind = constant, .is_later = true}, c.rope.layout);
    visit(ConfigField{.name = "qk_norm", .is_later = true}, c.attention.qk_norm);
    visit(ConfigField{.name = "attention_bias", .is_later = true}, c.attention.bias);
    visit(ConfigField{.name = "attention_sinks", .is_later = true}, c.attention.sinks);
    visit(ConfigField{.name = "sliding_window", .kind = constant, .is_later = true, .least = 0},
          c.attention.window);
    visit(ConfigField{.name = "window_period", .kind = constant, .is_later = true}, c.windowed.period);
    visit(ConfigField{.name = "window_first_layer", .kind = constant, .is_later = true, .least = 0},
          c.windowed.first);
    visit(ConfigField{.name = "attention_chunk", .kind = constant, .is_later = true, .least = 0},
          c.attention.chunk);
    visit(ConfigField{.name = "nope_period", .kind = constant, .is_later = true, .least = 0},
          c.without_rope.period);
    visit(ConfigField{.name = "nope_first_layer", .kind = constant, .is_later = true, .least = 0},
          c.without_rope.first);
    visit(ConfigField{.name = "temperature_scale",
                      .kind = constant,
                      .is_later = true,
                      .may_be_zero = true,
                      .usual = "0.1"},
          c.attention.temperature.scale);
    visit(ConfigField{.name = "temperature_floor", .kind = constant, .is_later = true, .usual = "8192"},
          c.attention.temperature.floor);
    visit(ConfigField{.name = "moe.num_experts", .is_later = true, .least = 0, .most = 1 << 16},
          c.moe.experts);
    visit(ConfigField{.name = "moe.top_k", .kind = constant, .is_later = true}, c.moe.top_k);
    visit(ConfigField{.name = "moe.hidden", .is_later = true, .least = 0}, c.moe.hidden);
    visit(ConfigField{.name = "moe.shared_hidden", .is_later = true, .least = 0}, c.moe.shared_hidden);
    visit(ConfigField{.name = "moe.score_func", .kind = constant, .is_later = true}, c.moe.score);
    visit(ConfigField{.name = "moe.route_norm", .kind = constant, .is_later = true}, c.moe.normalise);
    visit(ConfigField{.name = "moe.route_scale", .kind = constant, .is_later = true, .usual = "1"},
          c.moe.scale);
    visit(ConfigField{.name = "moe.num_expert_groups", .kind = constant, .is_later = true}, c.moe.groups);
    visit(ConfigField{.name = "moe.num_limited_groups", .kind = constant, .is_later = true},
          c.moe.kept_groups);
    visit(ConfigField{.name = "moe.gate_bias", .is_later = true}, c.moe.router_bias);
    visit(ConfigField{.name = "moe.biases", .is_later = true}, c.moe.biases);
    // described only if it differs from moe.biases, which stood for both at first
    visit(ConfigField{.name = "moe.gate_interleaved", .is_later = true}, c.moe.gate.interleaved);
    visit(
        ConfigField{
            .name = "moe.gate_limit", .kind = constant, .is_later = true, .may_be_zero = true, .usual = "7"},
        c.moe.gate.limit);
    visit(ConfigField{.name = "moe.gate_alpha", .kind = constant, .is_later = true, .usual = "1.702"},
          c.moe.gate.alpha);
    visit(
        ConfigField{
            .name = "moe.gate_shift", .kind = constant, .is_later = true, .may_be_zero = true, .usual = "1"},
        c.moe.gate.shift);
    visit(ConfigField{.name = "moe.score_before_experts", .kind = constant, .is_later = true},
          c.moe.gate.scales_input);
    visit(ConfigField{.name = "moe.load_balance_coeff",
                      .kind = limit,
                      .is_later = true,
                      .may_be_zero = true,
                      .usual = "1e-3"},
          c.moe.balance_rate);
    visit(ConfigField{.name = "moe.keeps_expert_bias", .is_later = true}, c.moe.keeps_bias);
    visit(ConfigField{.name = "moe.sequence_balance_coeff",
                      .kind = limit,
                      .is_later = true,
                      .may_be_zero = true,
                      .usual = "1e-4"},
          c.moe.sequence_balance);
    visit(ConfigField{.name = "moe.layer_period", .is_later = true}, c.moe_layers.period);
    visit(ConfigField{.name = "n_dense_layers", .is_later = true, .least = 0}, c.moe_layers.first);
    visit(ConfigField{.name = "initial_values", .kind = limit, .is_later = true}, c.initial_values);
    visit(ConfigField{.name = "num_mtp_layers", .is_later = true, .least = 0, .most = 64}, c.mtp_layers);
    visit(
        ConfigField{
            .name = "mtp_scale", .kind = limit, .is_later = true, .may_be_zero = true, .usual = "0.3"},
        c.mtp_scale);
}

/// The same for a scaling of RoPE; `hub`: keys in rope_parameters and rope_scaling. Values are double and
/// bool.
template <class Scaling, class Visit>
void for_each_field(Scaling& s,
                    Visit&& visit) requires std::same_as<std::remove_const_t<Scaling>, Llama3Scaling> {
    visit(ConfigField{.name = "factor", .hub = "factor", .is_required = true}, s.factor);
    visit(ConfigField{.name = "low_frequency", .hub = "low_freq_factor", .is_required = true},
          s.low_frequency);
    visit(ConfigField{.name = "high_frequency", .hub = "high_freq_factor", .is_required = true},
          s.high_frequency);
    visit(
        ConfigField{
            .name = "original_positions", .hub = "original_max_position_embeddings", .is_required = true},
        s.original_positions);
}
template <class Scaling, class Visit>
void for_each_field(Scaling& s,
                    Visit&& visit) requires std::same_as<std::remove_const_t<Scaling>, YarnScaling> {
    visit(ConfigField{.name = "factor", .hub = "factor", .is_required = true}, s.factor);
    visit(ConfigField{.name = "original_positions", .hub = "original_max_position_embeddings"},
          s.original_positions);
    visit(ConfigField{.name = "beta_fast", .hub = "beta_fast"}, s.beta_fast);
    visit(ConfigField{.name = "beta_slow", .hub = "beta_slow"}, s.beta_slow);
    visit(ConfigField{.name = "truncate", .hub = "truncate"}, s.truncate);
    visit(ConfigField{.name = "attention_factor", .hub = "attention_factor"}, s.attention_factor);
    visit(ConfigField{.name = "mscale", .hub = "mscale"}, s.mscale);
    visit(ConfigField{.name = "mscale_all_dim", .hub = "mscale_all_dim"}, s.mscale_all_dim);
}

/// The description of a model that a checkpoint contains: JSON with every field.
std::string describe_model(const DecoderConfig& model);
/// Reads a description and validates it; a missing field that is not required has its default. ConfigError
/// naming the file, `source`.
DecoderConfig model_from_description(const std::string& description, const std::string& source);

/// A field in which two models differ, with its values as JSON.
struct FieldDifference {
    ConfigField field;
    std::string ours, theirs;
};
std::vector<FieldDifference> differences(const DecoderConfig& ours, const DecoderConfig& theirs);

/// The value that a deck gives to a field, looked up by name, or nothing.
using FieldValue = std::variant<bool, int64_t, double, std::string>;
using GivenFields = std::function<std::optional<FieldValue>(const std::string& name)>;
/// Sets the fields that are given, and those that depend on them: width of a head, key/value heads, and the
/// feed-forward width by `ffn_dim_multiplier` and `multiple_of` (FfnRule). ConfigError if a dependent field
/// cannot be computed.
void override_fields(DecoderConfig& model, const GivenFields& given);

}  // namespace coeus
