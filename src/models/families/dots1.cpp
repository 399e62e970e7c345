// SPDX-License-Identifier: Apache-2.0
// dots.llm1 (rednote-hilab 2025): the attention of Qwen 3 and the experts of
// DeepSeek V3, without groups.
#include "coeus/models/family.hpp"
#include "coeus/models/hub_keys.hpp"

namespace coeus::dots1 {

namespace {

MoeConfig experts_of(int64_t experts, int64_t top_k, int64_t hidden, int64_t shared_hidden) {
    return {.experts = experts,
            .top_k = top_k,
            .hidden = hidden,
            .shared_hidden = shared_hidden,
            .score = ScoreFunction::sigmoid,
            .balance_rate = 1e-3,
            .keeps_bias = true};
}

void hub_keys(HubKeys& keys, DecoderConfig& config) {
    // transformers' defaults; there are none of the numbers of experts
    keys.usual(
        config,
        {.attention = GroupedAttentionConfig{.kv_heads = 32, .qk_norm = QkNorm::before_rope, .window = 4096},
         .windowed = {.first = 62},
         .moe = experts_of(0, 0, 1408, 0),
         .rope = {.layout = RopeLayout::half_split},
         .norm_eps = 1e-6,
         .max_seq_len = 2048});
    keys.silu();
    keys.rope(config);
    keys.window(config);
    keys.choice("attention_bias", config.grouped().bias, AttentionBias::all, AttentionBias::none);
    keys.shared_experts(config.moe);
    keys.expert_groups(config.moe);
    keys.integer("first_k_dense_replace", config.moe_layers.first, 0);
    keys.idle({"output_router_logits"});
}

DecoderConfig flavor(const char* name, int64_t dim, int64_t layers, int64_t heads, int64_t hidden,
                     int64_t vocab, const MoeConfig& experts) {
    DecoderConfig model = {
        .family = "dots1",
        .flavor = name,
        .dim = dim,
        .layers = layers,
        .vocab = vocab,
        .attention =
            GroupedAttentionConfig{
                .heads = heads, .kv_heads = heads, .head_dim = dim / heads, .qk_norm = QkNorm::before_rope},
        .feed_forward = {.hidden = hidden},
        .moe = experts,
        .moe_layers = {.first = 1},
        .rope = {.theta = 1e7, .layout = RopeLayout::half_split},
        .max_seq_len = 32768};
    model.moe.normalise = true;
    model.moe.scale = 2.5;
    return model;
}

}  // namespace

}  // namespace coeus::dots1

namespace coeus {

ModelFamily dots1_family() {
    using namespace dots1;
    return {.name = "dots1",
            .flavors = {flavor("debugmodel", 256, 4, 16, 768, 2048, experts_of(16, 6, 64, 128)),
                        flavor("142B-A14B", 4096, 62, 32, 10944, 152064, experts_of(128, 6, 1408, 2816))},
            .architectures = {"Dots1ForCausalLM"},
            .model_types = {"dots1"},
            .hub_keys = hub_keys,
            .hub_places = deepseek_hub_places,
            .hub_ignores = usually_ignored_in_hub,
            .init = usual_init};
}

}  // namespace coeus
