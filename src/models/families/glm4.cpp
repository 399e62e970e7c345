// SPDX-License-Identifier: Apache-2.0
// GLM-4 of 2025 (Zhipu AI, GLM-4-0414): norms before and after the sublayers, and RoPE of neighbouring
// columns of half of a head.
#include "coeus/models/family.hpp"
#include "coeus/models/hub_keys.hpp"

#include <array>

namespace coeus::glm4 {

namespace {

void hub_keys(HubKeys& keys, DecoderConfig& config) {
    // transformers' defaults
    keys.usual(config,
               {.attention =
                    GroupedAttentionConfig{
                        .kv_heads = 2, .head_dim = 128, .bias = AttentionBias::qkv, .rope_fraction = 0.5},
                .norm_eps = 1.5625e-7,
                .norm_placement = NormPlacement::around,
                .max_seq_len = 131072});
    keys.silu();
    keys.rope_fraction(config);
    keys.rope(config);
    keys.choice("attention_bias", config.grouped().bias, AttentionBias::qkv, AttentionBias::none);
}

constexpr std::array names = {HubName{"post_attention_norm.weight", "post_self_attn_layernorm.weight"},
                              HubName{"ffn_norm.weight", "post_attention_layernorm.weight"},
                              HubName{"post_ffn_norm.weight", "post_mlp_layernorm.weight"}};

std::vector<HubPlace> hub_places(const std::string& parameter, const Shape& shape,
                                 const DecoderConfig& config) {
    const std::array stacks = {gate_up_hub_stack(config)};
    if (auto places = places_in(stacks, parameter, shape); !places.empty()) return places;
    return hub_places_by(names, parameter, shape, config);
}

DecoderConfig flavor(const FlavorSizes& sizes, AttentionBias bias) {
    return with_sizes({.family = "glm4",
                       .attention = GroupedAttentionConfig{.bias = bias, .rope_fraction = 0.5},
                       .norm_placement = NormPlacement::around,
                       .max_seq_len = 32768},
                      sizes);
}

}  // namespace

}  // namespace coeus::glm4

namespace coeus {

ModelFamily glm4_family() {
    using namespace glm4;
    return {.name = "glm4",
            .flavors = {flavor({"debugmodel", 256, 4, 16, 8, 16, 768, 2048}, AttentionBias::qkv),
                        flavor({"9B-0414", 4096, 40, 32, 2, 128, 13696, 151552}, AttentionBias::qkv),
                        flavor({"32B-0414", 6144, 61, 48, 2, 128, 23040, 151552}, AttentionBias::none)},
            .architectures = {"Glm4ForCausalLM"},
            .model_types = {"glm4"},
            .hub_keys = hub_keys,
            .hub_places = hub_places,
            .hub_ignores = usually_ignored_in_hub,
            .init = usual_init};
}

}  // namespace coeus
