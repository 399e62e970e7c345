// SPDX-License-Identifier: Apache-2.0
// Mistral 7B (Jiang et al. 2023): Llama with a sliding window in every layer. Later ones, such as Mistral
// Small 3 (Mistral AI 2025), have none.
#include "coeus/models/family.hpp"
#include "coeus/models/hub_keys.hpp"

namespace coeus::mistral {

namespace {

DecoderConfig flavor(const FlavorSizes& sizes, double theta, int64_t window, int64_t max_seq_len) {
    return with_sizes({.family = "mistral",
                       .attention = GroupedAttentionConfig{.window = window},
                       .rope = {.theta = theta, .layout = RopeLayout::half_split},
                       .max_seq_len = max_seq_len},
                      sizes);
}

void hub_keys(HubKeys& keys, DecoderConfig& config) {
    keys.usual(config, {.attention = GroupedAttentionConfig{.kv_heads = 8, .window = 4096},
                        .rope = {.layout = RopeLayout::half_split},
                        .norm_eps = 1e-6,
                        .max_seq_len = 131072});  // transformers' defaults
    keys.silu();
    keys.rope(config);
    keys.window(config, {.writes_lists = false});
}

}  // namespace

}  // namespace coeus::mistral

namespace coeus {

ModelFamily mistral_family() {
    using namespace mistral;
    return {.name = "mistral",
            .flavors = {flavor({"debugmodel", 256, 6, 16, 8, 16, 768, 2048}, 10000, 64, 2048),
                        flavor({"7B-v0.1", 4096, 32, 32, 8, 128, 14336, 32000}, 10000, 4096, 32768),
                        flavor({"7B-v0.3", 4096, 32, 32, 8, 128, 14336, 32768}, 1e6, 0, 32768),
                        flavor({"Small-24B-2501", 5120, 40, 32, 8, 128, 32768, 131072}, 1e8, 0, 32768)},
            .architectures = {"MistralForCausalLM"},
            .model_types = {"mistral"},
            .wrappers = {"Mistral3ForConditionalGeneration"},
            .hub_keys = hub_keys,
            .hub_places = usual_hub_places,
            .hub_ignores = usually_ignored_in_hub,
            .init = usual_init};
}

}  // namespace coeus
