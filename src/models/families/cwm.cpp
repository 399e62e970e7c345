// SPDX-License-Identifier: Apache-2.0
// CWM (Meta FAIR 2025, Code World Model): Llama 3 with a window in all layers
// but each fourth.
#include "coeus/models/family.hpp"
#include "coeus/models/hub_keys.hpp"

namespace coeus::cwm {

namespace {

// transformers' defaults, which are those of the 32B
const RopeConfig usual_rope = {
    .theta = 1e6,
    .scaling =
        Llama3Scaling{.factor = 16, .low_frequency = 1, .high_frequency = 4, .original_positions = 8192},
    .layout = RopeLayout::half_split};
const LayerChoice usual_windowed = {.word = "0111"};

void hub_keys(HubKeys& keys, DecoderConfig& config) {
    keys.usual(config, {.attention = GroupedAttentionConfig{.kv_heads = 8, .head_dim = 128, .window = 8192},
                        .windowed = usual_windowed,
                        .rope = usual_rope});
    keys.silu();
    keys.constant("mlp_bias", false, "biases are not implemented yet");
    keys.whole_rope_if_absent(config);
    keys.rope(config);
    keys.window(config, {.has_first = false});
    // transformers refuses null, which a folder without this token would have
    constexpr int64_t first_token = 128000;
    keys.write("bos_token_id", config.vocab > first_token ? first_token : 0);
}

DecoderConfig flavor(const FlavorSizes& sizes, int64_t window) {
    return with_sizes({.family = "cwm",
                       .attention = GroupedAttentionConfig{.window = window},
                       .windowed = usual_windowed,
                       .rope = usual_rope},
                      sizes);
}

}  // namespace

}  // namespace coeus::cwm

namespace coeus {

ModelFamily cwm_family() {
    using namespace cwm;
    return {.name = "cwm",
            .flavors = {flavor({"debugmodel", 256, 8, 16, 8, 16, 768, 2048}, 64),
                        flavor({"32B", 6144, 64, 48, 8, 128, 21504, 128256}, 8192)},
            .architectures = {"CwmForCausalLM"},
            .model_types = {"cwm"},
            .hub_keys = hub_keys,
            .hub_places = usual_hub_places,
            .hub_ignores = usually_ignored_in_hub,
            .init = usual_init};
}

}  // namespace coeus
