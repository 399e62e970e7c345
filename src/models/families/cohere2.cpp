// SPDX-License-Identifier: Apache-2.0
// Command R7B and Command A (Cohere 2024, 2025): attention and feed-forward layer side by side on a
// LayerNorm, and a factor of the logits. Three of four layers have a window and RoPE, the fourth has neither.
// Without a window, no layer has RoPE.
#include "coeus/models/family.hpp"
#include "coeus/models/hub_keys.hpp"

#include <vector>

namespace coeus::cohere {

namespace {

LayerChoice three_of_four() {
    return {.word = "1110"};
}

LayerChoice layers_without_window(const DecoderConfig& config) {
    if (config.grouped().window == 0) return {};
    const LayerChoice each_fourth = {.period = 4, .first = 3};
    std::vector<bool> has;
    for (int64_t i = 0; i < config.layers; ++i) has.push_back(!config.windowed.has(i));
    const LayerChoice choice = LayerChoice::of(has, each_fourth);
    return choice.has_same(each_fourth, config.layers) ? each_fourth : choice;
}

void hub_keys(HubKeys& keys, DecoderConfig& config) {
    // transformers' defaults
    keys.usual(config, {.attention = GroupedAttentionConfig{.window = 4096},
                        .windowed = three_of_four(),
                        .norm_type = NormType::layer_norm,
                        .tied = true,
                        .logits_scale = 0.0625,
                        .parallel_block = true,
                        .max_seq_len = 8192});
    keys.silu();
    keys.rope(config);
    if (keys.reads())
        if (const auto pattern = keys.json().find("sliding_window_pattern"))  // of older files
            config.windowed =
                all_but_each(integer_within(1, 1 << 16, *pattern), config.layers, three_of_four());
    keys.window(config, {.has_first = false});
    if (keys.reads()) config.without_rope = layers_without_window(config);
    keys.number("logit_scale", config.logits_scale);
    keys.choice("attention_bias", config.grouped().bias, AttentionBias::all, AttentionBias::none);
    keys.idle({"cache_implementation", "layer_switch", "order_of_interleaved_layers",
               "position_embedding_type", "rotary_pct", "use_embedding_sharing", "use_gated_activation",
               "use_parallel_block", "use_parallel_embedding"});
    keys.constant("use_qk_norm", false, "norms of heads are not implemented yet");
}

DecoderConfig flavor(const FlavorSizes& sizes, int64_t window, int64_t max_seq_len) {
    return with_sizes({.family = "cohere2",
                       .attention = GroupedAttentionConfig{.window = window},
                       .windowed = three_of_four(),
                       .without_rope = {.period = 4, .first = 3},
                       .rope = {.theta = 50000},
                       .norm_type = NormType::layer_norm,
                       .tied = true,
                       .logits_scale = 0.25,
                       .parallel_block = true,
                       .max_seq_len = max_seq_len},
                      sizes);
}

}  // namespace

}  // namespace coeus::cohere

namespace coeus {

ModelFamily cohere2_family() {
    using namespace cohere;
    return {.name = "cohere2",
            .flavors = {flavor({"debugmodel", 256, 4, 16, 8, 16, 768, 2048}, 64, 2048),
                        flavor({"R7B", 4096, 32, 32, 8, 128, 14336, 256000}, 4096, 8192),
                        flavor({"A", 12288, 64, 96, 8, 128, 36864, 256000}, 4096, 131072)},
            .architectures = {"Cohere2ForCausalLM"},
            .model_types = {"cohere2"},
            .hub_keys = hub_keys,
            .hub_places = usual_hub_places,
            .hub_ignores = usually_ignored_in_hub,
            .init = usual_init};
}

}  // namespace coeus
