// SPDX-License-Identifier: Apache-2.0
// GLM-4.5, 4.6 and 4.7 (GLM team 2025, GLM-4.5: Agentic, Reasoning, and Coding
// Foundation Models): biases of queries, keys and values, RoPE of half of each
// head, and the experts of DeepSeek V3, without groups.
#include "coeus/models/family.hpp"
#include "coeus/models/hub_keys.hpp"

namespace coeus::glm4_moe {

namespace {

struct Row {
    const char* flavor;
    int64_t dim, layers, dense_layers, heads, hidden, experts, expert_hidden;
    double scale;
    QkNorm qk_norm;
    int64_t max_seq_len;
    int64_t kv_heads = 8, head_dim = 128, vocab = 151552;
};

MoeConfig experts_of(int64_t experts, int64_t hidden, double scale) {
    return {.experts = experts,
            .top_k = 8,
            .hidden = hidden,
            .shared_hidden = hidden,
            .score = ScoreFunction::sigmoid,
            .normalise = true,
            .scale = scale,
            .balance_rate = 1e-3,
            .keeps_bias = true};
}

void hub_keys(HubKeys& keys, DecoderConfig& config) {
    // transformers' defaults
    keys.usual(config, {.attention = GroupedAttentionConfig{.kv_heads = 8, .rope_fraction = 0.5},
                        .moe = experts_of(128, 1408, 1),
                        .moe_layers = {.first = 1},
                        .rope = {.layout = RopeLayout::half_split}});
    GroupedAttentionConfig& a = config.grouped();
    keys.silu();
    keys.rope_fraction(config);
    keys.rope(config);
    keys.choice("attention_bias", a.bias, AttentionBias::qkv, AttentionBias::none);
    keys.choice("use_qk_norm", a.qk_norm, QkNorm::before_rope, QkNorm::none);
    keys.shared_experts(config.moe);
    keys.expert_groups(config.moe);
    keys.integer("first_k_dense_replace", config.moe_layers.first, 0);
    keys.integer({"num_nextn_predict_layers", "num_mtp_layers"}, config.mtp.layers, 0);
    keys.idle({"output_router_logits"});
}

}  // namespace

}  // namespace coeus::glm4_moe

namespace coeus {

ModelFamily glm4_moe_family() {
    using namespace glm4_moe;
    ModelFamily family = {.name = "glm4_moe",
                          .flavors = {},
                          .architectures = {"Glm4MoeForCausalLM"},
                          .model_types = {"glm4_moe"},
                          .hub_keys = hub_keys,
                          .hub_places = deepseek_hub_places,
                          .hub_ignores = deepseek_hub_ignores,
                          .hub_copy_of = deepseek_hub_copy_of,
                          .init = usual_init};
    const Row rows[] = {
        {"debugmodel", 256, 4, 1, 16, 768, 16, 64, 1, QkNorm::before_rope, 2048, 8, 16, 2048},
        {"4.5-Air", 4096, 46, 1, 96, 10944, 128, 1408, 1, QkNorm::none, 131072},
        {"4.5", 5120, 92, 3, 96, 12288, 160, 1536, 2.5, QkNorm::before_rope, 131072},
        {"4.6", 5120, 92, 3, 96, 12288, 160, 1536, 2.5, QkNorm::before_rope, 202752},
        {"4.7", 5120, 92, 3, 96, 12288, 160, 1536, 2.5, QkNorm::before_rope, 202752},
    };
    for (const Row& row : rows)
        family.flavors.push_back({.family = family.name,
                                  .flavor = row.flavor,
                                  .dim = row.dim,
                                  .layers = row.layers,
                                  .vocab = row.vocab,
                                  .attention = GroupedAttentionConfig{.heads = row.heads,
                                                                      .kv_heads = row.kv_heads,
                                                                      .head_dim = row.head_dim,
                                                                      .qk_norm = row.qk_norm,
                                                                      .bias = AttentionBias::qkv,
                                                                      .rope_fraction = 0.5},
                                  .feed_forward = {.hidden = row.hidden},
                                  .moe = experts_of(row.experts, row.expert_hidden, row.scale),
                                  .moe_layers = {.first = row.dense_layers},
                                  .rope = {.theta = 1e6, .layout = RopeLayout::half_split},
                                  .max_seq_len = row.max_seq_len});
    return family;
}

}  // namespace coeus
