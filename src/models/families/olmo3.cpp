// SPDX-License-Identifier: Apache-2.0
// OLMo 3 (Ai2 2025): OLMo 2 with a window in all layers but each fourth. Only the layers without a window
// have YaRN, so the others have a RoPE of their own.
#include "coeus/models/family.hpp"
#include "coeus/models/hub_keys.hpp"

namespace coeus::olmo3 {

namespace {

const LayerChoice usual_windowed = {.word = "1110"};
constexpr double usual_theta = 500000;

void hub_keys(HubKeys& keys, DecoderConfig& config) {
    // transformers' defaults
    keys.usual(config, {.attention = GroupedAttentionConfig{.qk_norm = QkNorm::all_heads, .window = 4096},
                        .windowed = usual_windowed,
                        .rope = {.theta = usual_theta, .layout = RopeLayout::half_split},
                        .window_rope = {.theta = usual_theta},
                        .norm_placement = NormPlacement::after,
                        .max_seq_len = 2048});
    keys.silu();
    keys.window(config, {.has_first = false});
    keys.ropes(config, nullptr);
    keys.choice("attention_bias", config.grouped().bias, AttentionBias::all, AttentionBias::none);
}

DecoderConfig flavor(const FlavorSizes& sizes, int64_t window) {
    return with_sizes({.family = "olmo3",
                       .attention = GroupedAttentionConfig{.qk_norm = QkNorm::all_heads, .window = window},
                       .windowed = usual_windowed,
                       .rope = {.theta = usual_theta,
                                .scaling = YarnScaling{.factor = 8, .original_positions = 8192},
                                .layout = RopeLayout::half_split},
                       .window_rope = {.theta = usual_theta},
                       .norm_eps = 1e-6,
                       .norm_placement = NormPlacement::after,
                       .max_seq_len = 65536},
                      sizes);
}

}  // namespace

}  // namespace coeus::olmo3

namespace coeus {

ModelFamily olmo3_family() {
    using namespace olmo3;
    return {.name = "olmo3",
            .flavors = {flavor({"debugmodel", 256, 4, 16, 8, 16, 768, 2048}, 64),
                        flavor({"7B", 4096, 32, 32, 32, 128, 11008, 100278}, 4096),
                        flavor({"32B", 5120, 64, 40, 8, 128, 27648, 100278}, 4096)},
            .architectures = {"Olmo3ForCausalLM"},
            .model_types = {"olmo3"},
            .hub_keys = hub_keys,
            .hub_places = usual_hub_places,
            .hub_ignores = usually_ignored_in_hub,
            .init = usual_init};
}

}  // namespace coeus
