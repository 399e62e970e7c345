// SPDX-License-Identifier: Apache-2.0
// Gemma 3 (Gemma Team 2025): norms around sublayers with weights 1 + w, norms of heads, five layers with a
// window for one without, each kind with a RoPE of its own. From 4B on folders also take images.
#include "coeus/models/family.hpp"
#include "coeus/models/hub_keys.hpp"

#include <cmath>

namespace coeus::gemma3 {

namespace {

constexpr int64_t usual_period = 6;  // of the layers without a window

LayerChoice usual_windowed() {
    return {.word = "111110"};
}

// The layers without a window may have a RoPE that is stretched. Scores are divided by the square root of
// `score_columns`, or of the width of a head.
DecoderConfig flavor(const FlavorSizes& sizes, int64_t window, int64_t max_seq_len, double rope_factor = 1,
                     int64_t score_columns = 0) {
    const auto columns = double(score_columns > 0 ? score_columns : sizes.head_dim);
    DecoderConfig config = with_sizes({.family = "gemma3",
                                       .attention = GroupedAttentionConfig{.qk_norm = QkNorm::before_rope,
                                                                           .scale = 1 / std::sqrt(columns),
                                                                           .window = window},
                                       .windowed = usual_windowed(),
                                       .feed_forward = {.activation = Activation::gelu_tanh},
                                       .rope = {.theta = 1e6, .layout = RopeLayout::half_split},
                                       .window_rope = {.theta = 1e4},
                                       .norm_eps = 1e-6,
                                       .norm_placement = NormPlacement::around,
                                       .norm_offset = true,
                                       .tied = true,
                                       .embedding_scale = std::sqrt(double(sizes.dim)),
                                       .max_seq_len = max_seq_len},
                                      sizes);
    if (rope_factor > 1) config.rope.scaling = LinearScaling{.factor = rope_factor};
    return config;
}

// Older files have the period of the layers without a window and no list of types. transformers writes the
// period by a name with an underscore too, and does not read that.
void read_period(HubKeys& keys, DecoderConfig& config) {
    constexpr const char *read = "sliding_window_pattern", *written = "_sliding_window_pattern";
    int64_t period = usual_period;
    keys.idle({written});
    if (keys.json().contains(read))
        keys.integer(read, period);
    else if (const auto found = keys.json().find(written);
             found && found->integer() != usual_period && !keys.json().contains("layer_types"))
        found->reject(fmt::format("must be {}, which transformers takes without {} or layer_types",
                                  usual_period, read));
    config.windowed = all_but_each(period, config.layers, usual_windowed());
}

void hub_keys(HubKeys& keys, DecoderConfig& config) {
    // transformers' defaults
    keys.usual(config, flavor({"", 2304, 26, 8, 4, 256, 9216, 262208}, 4096, 131072));
    GroupedAttentionConfig& a = config.grouped();
    if (keys.reads()) config.embedding_scale = std::sqrt(double(config.dim));
    keys.idle({"cache_implementation"});
    keys.constant("hidden_activation", "gelu_pytorch_tanh", "others are not implemented yet");
    for (const char* cap : {"final_logit_softcapping", "attn_logit_softcapping"})
        keys.constant(cap, {}, "caps are not implemented yet");
    keys.constant("use_bidirectional_attention", false, "attention to later tokens is not implemented yet");
    keys.choice("attention_bias", a.bias, AttentionBias::all, AttentionBias::none);
    int64_t columns = a.scale > 0 ? std::llround(1 / (a.scale * a.scale)) : a.head_dim;
    keys.integer("query_pre_attn_scalar", columns);
    if (keys.reads()) a.scale = 1 / std::sqrt(double(columns));
    if (keys.reads()) read_period(keys, config);
    // transformers does not run a null window, not even if no layer has it
    keys.window(config, {.has_first = false, .without_any = 4096});
    keys.ropes(config, "rope_local_base_freq");
}

}  // namespace

}  // namespace coeus::gemma3

namespace coeus {

ModelFamily gemma3_family() {
    using namespace gemma3;
    return {.name = "gemma3",
            .flavors = {flavor({"debugmodel", 256, 6, 8, 4, 32, 768, 2048}, 64, 2048),
                        flavor({"270M", 640, 18, 4, 1, 256, 2048, 262144}, 512, 32768),
                        flavor({"1B", 1152, 26, 4, 1, 256, 6912, 262144}, 512, 32768),
                        flavor({"4B", 2560, 34, 8, 4, 256, 10240, 262208}, 1024, 131072, 8),
                        flavor({"12B", 3840, 48, 16, 8, 256, 15360, 262208}, 1024, 131072, 8),
                        flavor({"27B", 5376, 62, 32, 16, 128, 21504, 262208}, 1024, 131072, 8, 168)},
            .architectures = {"Gemma3ForCausalLM"},
            .model_types = {"gemma3_text"},
            .wrappers = {"Gemma3ForConditionalGeneration"},
            .hub_keys = hub_keys,
            .hub_places = usual_hub_places,
            .hub_ignores = usually_ignored_in_hub,
            .init = usual_init};
}

}  // namespace coeus
