// SPDX-License-Identifier: Apache-2.0
// SmolLM3 (Hugging Face 2025): Llama without RoPE in every fourth layer.
#include "coeus/models/family.hpp"
#include "coeus/models/hub_keys.hpp"

namespace coeus::smollm3 {

namespace {

const LayerChoice each_fourth = {.period = 4, .first = 3};

void hub_keys(HubKeys& keys, DecoderConfig& config) {
    // transformers' defaults
    keys.usual(config, {.attention = GroupedAttentionConfig{.kv_heads = 4},
                        .without_rope = each_fourth,
                        .rope = {.theta = 2e6, .layout = RopeLayout::half_split},
                        .norm_eps = 1e-6,
                        .tied = true,
                        .max_seq_len = 32768});
    keys.silu();
    keys.constant("mlp_bias", false, "biases are not implemented yet");
    keys.rope(config);
    keys.layers_without_rope(config);
    if (keys.reads()) config.windowed = config.without_rope;  // unless a list says otherwise
    keys.window(config, {.used_if = "use_sliding_window", .has_first = false});
    keys.choice("attention_bias", config.grouped().bias, AttentionBias::all, AttentionBias::none);
}

DecoderConfig flavor(const FlavorSizes& sizes) {
    return with_sizes({.family = "smollm3",
                       .attention = GroupedAttentionConfig{},
                       .without_rope = each_fourth,
                       .rope = {.theta = 5e6, .layout = RopeLayout::half_split},
                       .norm_eps = 1e-6,
                       .tied = true,
                       .max_seq_len = 65536},
                      sizes);
}

}  // namespace

}  // namespace coeus::smollm3

namespace coeus {

ModelFamily smollm3_family() {
    using namespace smollm3;
    return {.name = "smollm3",
            .flavors = {flavor({"debugmodel", 256, 8, 16, 4, 16, 768, 2048}),
                        flavor({"3B", 2048, 36, 16, 4, 128, 11008, 128256})},
            .architectures = {"SmolLM3ForCausalLM"},
            .model_types = {"smollm3"},
            .hub_keys = hub_keys,
            .hub_places = usual_hub_places,
            .hub_ignores = usually_ignored_in_hub,
            .init = usual_init};
}

}  // namespace coeus
