// SPDX-License-Identifier: Apache-2.0
// OLMo 2 (Walsh et al. 2024, 2 OLMo 2 Furious): Llama with norms after the sublayers in the place of those
// before them, and norms of the queries and keys of all heads together.
#include "coeus/models/family.hpp"
#include "coeus/models/hub_keys.hpp"

namespace coeus::olmo2 {

namespace {

void hub_keys(HubKeys& keys, DecoderConfig& config) {
    // transformers' defaults
    keys.usual(config, {.attention = GroupedAttentionConfig{.qk_norm = QkNorm::all_heads},
                        .rope = {.layout = RopeLayout::half_split},
                        .norm_placement = NormPlacement::after,
                        .max_seq_len = 2048});
    keys.silu();
    keys.rope(config);
    keys.choice("attention_bias", config.grouped().bias, AttentionBias::all, AttentionBias::none);
}

DecoderConfig flavor(const FlavorSizes& sizes) {
    return with_sizes({.family = "olmo2",
                       .attention = GroupedAttentionConfig{.qk_norm = QkNorm::all_heads},
                       .rope = {.theta = 500000, .layout = RopeLayout::half_split},
                       .norm_eps = 1e-6,
                       .norm_placement = NormPlacement::after,
                       .max_seq_len = 4096},
                      sizes);
}

}  // namespace

}  // namespace coeus::olmo2

namespace coeus {

ModelFamily olmo2_family() {
    using namespace olmo2;
    constexpr int64_t vocab = 100352;
    return {.name = "olmo2",
            .flavors = {flavor({"debugmodel", 256, 4, 16, 8, 16, 768, 2048}),
                        flavor({"1B", 2048, 16, 16, 16, 128, 8192, vocab}),
                        flavor({"7B", 4096, 32, 32, 32, 128, 11008, vocab}),
                        flavor({"13B", 5120, 40, 40, 40, 128, 13824, vocab}),
                        flavor({"32B", 5120, 64, 40, 8, 128, 27648, vocab})},
            .architectures = {"Olmo2ForCausalLM"},
            .model_types = {"olmo2"},
            .hub_keys = hub_keys,
            .hub_places = usual_hub_places,
            .hub_ignores = usually_ignored_in_hub,
            .init = usual_init};
}

}  // namespace coeus
