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

DecoderConfig flavor(const char* name, int64_t dim, int64_t layers, int64_t heads, int64_t kv_heads,
                     int64_t hidden, int64_t vocab) {
    return {
        .family = "olmo2",
        .flavor = name,
        .dim = dim,
        .layers = layers,
        .vocab = vocab,
        .attention =
            GroupedAttentionConfig{
                .heads = heads, .kv_heads = kv_heads, .head_dim = dim / heads, .qk_norm = QkNorm::all_heads},
        .feed_forward = {.hidden = hidden},
        .rope = {.theta = 500000, .layout = RopeLayout::half_split},
        .norm_eps = 1e-6,
        .norm_placement = NormPlacement::after,
        .max_seq_len = 4096};
}

}  // namespace

}  // namespace coeus::olmo2

namespace coeus {

ModelFamily olmo2_family() {
    using namespace olmo2;
    constexpr int64_t vocab = 100352;
    return {
        .name = "olmo2",
        .flavors = {flavor("debugmodel", 256, 4, 16, 8, 768, 2048),
                    flavor("1B", 2048, 16, 16, 16, 8192, vocab), flavor("7B", 4096, 32, 32, 32, 11008, vocab),
                    flavor("13B", 5120, 40, 40, 40, 13824, vocab),
                    flavor("32B", 5120, 64, 40, 8, 27648, vocab)},
        .architectures = {"Olmo2ForCausalLM"},
        .model_types = {"olmo2"},
        .hub_keys = hub_keys,
        .hub_places = usual_hub_places,
        .hub_ignores = usually_ignored_in_hub,
        .init = usual_init};
}

}  // namespace coeus
