// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding, which all layers of a decoder share.
#pragma once

#include "coeus/file/json.hpp"
#include "coeus/kernels/kernels.hpp"
#include "coeus/layers/rope_table.hpp"
#include "coeus/models/config_field.hpp"

#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <variant>

namespace coeus {

struct RopeConfig {
    double theta = 10000;  ///< base of the frequencies
    RopeScaling scaling = {};
    RopeLayout layout = RopeLayout::interleaved;

    bool operator==(const RopeConfig&) const = default;
};

/// RoPE of the layers with a window, if it is not that of the others (Gemma 3, OLMo 3).
struct WindowRope {
    double theta = 0;  ///< 0: as in the other layers
    RopeScaling scaling = {};

    explicit operator bool() const { return theta > 0 || scaling != RopeScaling{}; }
    /// The whole of it, in a model with this RoPE in the other layers.
    RopeConfig beside(const RopeConfig& other) const {
        return *this ? RopeConfig{theta > 0 ? theta : other.theta, scaling, other.layout} : other;
    }
    bool operator==(const WindowRope&) const = default;
};

constexpr auto names_of(RopeLayout) {
    return std::array{EnumName<RopeLayout>{"interleaved", RopeLayout::interleaved},
                      EnumName<RopeLayout>{"half_split", RopeLayout::half_split}};
}

template <class Visit>
void for_each_field(ConfigOf<RopeConfig> auto& rope, Visit&& visit) {
    using enum FieldKind;
    visit(ConfigField{.name = "rope_theta", .kind = constant, .usual = "500000"}, rope.theta);
    visit(ConfigField{.name = "rope_scaling", .kind = constant}, rope.scaling);
    visit(ConfigField{.name = "rope_layout", .kind = constant, .is_later = true}, rope.layout);
}

template <class Visit>
void for_each_field(ConfigOf<WindowRope> auto& rope, Visit&& visit) {
    using enum FieldKind;
    visit(ConfigField{.name = "window_rope_theta",
                      .kind = constant,
                      .is_later = true,
                      .may_be_zero = true,
                      .usual = "10000"},
          rope.theta);
    visit(ConfigField{.name = "window_rope_scaling", .kind = constant, .is_later = true}, rope.scaling);
}

/// The name of a kind of scaling in config.json and decks.
constexpr const char* type_name(const std::monostate&) {
    return "default";
}
constexpr const char* type_name(const LinearScaling&) {
    return "linear";
}
constexpr const char* type_name(const DynamicScaling&) {
    return "dynamic";
}
constexpr const char* type_name(const Llama3Scaling&) {
    return "llama3";
}
constexpr const char* type_name(const YarnScaling&) {
    return "yarn";
}
constexpr const char* type_name(const LongRopeScaling&) {
    return "longrope";
}
/// Returns the kind with this name and its usual values, or nothing if no kind has this name.
std::optional<RopeScaling> scaling_named(std::string_view type);

/// The fields of a scaling; `hub`: keys in rope_parameters and rope_scaling. Values are double, bool and
/// std::vector<double>.
template <class Visit>
void for_each_field(ConfigOf<LinearScaling> auto& s, Visit&& visit) {
    visit(ConfigField{.name = "factor", .hub = "factor", .is_required = true}, s.factor);
}
template <class Visit>
void for_each_field(ConfigOf<DynamicScaling> auto& s, Visit&& visit) {
    visit(ConfigField{.name = "factor", .hub = "factor", .is_required = true}, s.factor);
    visit(ConfigField{.name = "original_positions", .hub = "original_max_position_embeddings"},
          s.original_positions);
}
template <class Visit>
void for_each_field(ConfigOf<Llama3Scaling> auto& s, Visit&& visit) {
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
template <class Visit>
void for_each_field(ConfigOf<YarnScaling> auto& s, Visit&& visit) {
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

template <class Visit>
void for_each_field(ConfigOf<LongRopeScaling> auto& s, Visit&& visit) {
    visit(ConfigField{.name = "short_factor", .hub = "short_factor", .is_required = true}, s.short_factor);
    visit(ConfigField{.name = "long_factor", .hub = "long_factor", .is_required = true}, s.long_factor);
    visit(ConfigField{.name = "original_positions", .hub = "original_max_position_embeddings"},
          s.original_positions);
    visit(ConfigField{.name = "factor", .hub = "factor"}, s.factor);
    visit(ConfigField{.name = "attention_factor", .hub = "attention_factor"}, s.attention_factor);
}

/// A scaling in the description of a model; null: none.
Json describe_scaling(const RopeScaling& scaling);
/// The inverse, for an object. ConfigError: a field is missing, or the kind is unknown.
RopeScaling scaling_from_description(const JsonView& json);

/// RoPE in the formats of transformers 5 (rope_parameters) and of earlier versions (rope_theta,
/// rope_scaling), with all its kinds of scaling, from all places where transformers reads it.
/// `positions`: the model's longest sequence. `fraction`: the part of a head that the family rotates. `also`:
/// keys of the objects that the family reads itself.
/// ConfigError: two places do not agree, an object has an unknown key or one RoPE for each type of layer, or
/// partial_rotary_factor has another value.
void read_hub_rope(const JsonView& json, RopeConfig& rope, int64_t positions, double fraction = 1,
                   std::span<const char* const> also = {});
/// After the model's other fields: with the dynamic kind, max_position_embeddings is the original length.
void write_hub_rope(Json& json, const RopeConfig& rope);

/// The RoPEs of a model whose layers with a window have their own: objects "full_attention" and
/// "sliding_attention" in rope_parameters; or, in earlier versions, rope_theta and rope_scaling for layers
/// without a window alone. `window_theta`: the key that gives the others their theta there, or null if they
/// keep the given one. ConfigError as above, or if it is not clear to which layers rope_theta belongs.
void read_hub_ropes(const JsonView& json, RopeConfig& rope, WindowRope& in_windows, int64_t positions,
                    const char* window_theta);
/// Both forms of them. Without a RoPE of their own, layers with a window have that of the others.
void write_hub_ropes(Json& json, const RopeConfig& rope, const WindowRope& in_windows,
                     const char* window_theta);

/// ConfigError: LongRoPE has not one factor for each of the width/2 pairs of columns that are rotated.
void require_valid(const RopeConfig& rope, int64_t width);

}  // namespace coeus
