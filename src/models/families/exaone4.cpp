// SPDX-License-Identifier: Apache-2.0
// EXAONE 4 (LG AI Research 2025): norms after the sublayers, and of each head of queries and keys. If
// config.json has a window, the layers without it have no RoPE, even if they are all layers.
#include "coeus/models/family.hpp"
#include "coeus/models/hub_keys.hpp"

#include <algorithm>

namespace coeus::exaone4 {

namespace {

const LayerChoice usual_windowed = {.word = "1110"};
constexpr int64_t usual_window = 4096;

LayerChoice all_but(const LayerChoice& choice, int64_t layers) {
    std::vector<bool> has;
    for (int64_t i = 0; i < layers; ++i) has.push_back(!choice.has(i));
    return LayerChoice::of(has, {.period = 0});
}

// transformers reads the pattern only if there is no list of layers, and takes a number alone.
void read_pattern(const JsonView& json, DecoderConfig& config) {
    const auto pattern = json.find("sliding_window_pattern");
    if (!pattern || json.contains("layer_types") || is_null(json, "sliding_window")) return;
    const int64_t period = integer_within(1, config.layers, *pattern);
    config.windowed = all_but_each(period, config.layers, usual_windowed);
}

void hub_keys(HubKeys& keys, DecoderConfig& config) {
    // transformers' defaults
    keys.usual(config, {.attention =
                            GroupedAttentionConfig{
                                .kv_heads = 32, .qk_norm = QkNorm::before_rope, .window = usual_window},
                        .windowed = usual_windowed,
                        .rope = {.layout = RopeLayout::half_split},
                        .norm_placement = NormPlacement::after,
                        .max_seq_len = 2048});
    keys.silu();
    keys.rope(config);
    if (keys.reads()) read_pattern(keys.json(), config);
    const bool has_rope = config.without_rope.before(config.layers) < config.layers;
    keys.window(config, {.has_first = false, .without_any = has_rope ? 0 : usual_window});
    if (!keys.reads() || is_null(keys.json(), "sliding_window")) return;
    const bool has_windows = config.grouped().window > 0;
    config.without_rope = has_windows ? all_but(config.windowed, config.layers) : LayerChoice{};
}

DecoderConfig flavor(const FlavorSizes& sizes, int64_t window, bool tied, int64_t max_seq_len) {
    DecoderConfig model =
        with_sizes({.family = "exaone4",
                    .attention = GroupedAttentionConfig{.qk_norm = QkNorm::before_rope, .window = window},
                    .rope = {.theta = 1e6,
                             .scaling = Llama3Scaling{.factor = 16, .original_positions = 8192},
                             .layout = RopeLayout::half_split},
                    .norm_placement = NormPlacement::after,
                    .tied = tied,
                    .max_seq_len = max_seq_len},
                   sizes);
    if (window == 0) return model;
    model.windowed = usual_windowed;
    model.without_rope = all_but(usual_windowed, model.layers);
    return model;
}

}  // namespace

}  // namespace coeus::exaone4

namespace coeus {

ModelFamily exaone4_family() {
    using namespace exaone4;
    return {.name = "exaone4",
            .flavors = {flavor({"debugmodel", 256, 4, 16, 8, 16, 768, 2048}, 64, true, 2048),
                        flavor({"1.2B", 2048, 30, 32, 8, 64, 4096, 102400}, 0, true, 65536),
                        flavor({"32B", 5120, 64, 40, 8, 128, 27392, 102400}, 4096, false, 131072)},
            .architectures = {"Exaone4ForCausalLM"},
            .model_types = {"exaone4"},
            .hub_keys = hub_keys,
            .hub_places = usual_hub_places,
            .hub_ignores = usually_ignored_in_hub,
            .init = usual_init};
}

}  // namespace coeus
