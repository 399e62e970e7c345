// SPDX-License-Identifier: Apache-2.0
// OLMoE (Muennighoff et al. 2024): experts in every layer, whose softmax is not normalised, and norms of the
// queries and keys of all heads together.
#include "coeus/models/family.hpp"
#include "coeus/models/hub_keys.hpp"

namespace coeus::olmoe {

namespace {

constexpr double balance = 0.01;  // router_aux_loss_coef, by default

MoeConfig experts_of(int64_t experts, int64_t hidden) {
    return {.experts = experts, .top_k = 8, .hidden = hidden};
}

void hub_keys(HubKeys& keys, DecoderConfig& config) {
    // transformers' defaults
    keys.usual_of_experts(config, {.attention = GroupedAttentionConfig{.qk_norm = QkNorm::all_heads},
                                   .moe = experts_of(64, 0),
                                   .rope = {.layout = RopeLayout::half_split},
                                   .max_seq_len = 4096});
    keys.silu();
    keys.constant("clip_qkv", Json(), "clipped queries, keys and values are not implemented yet");
    keys.rope(config);
    keys.choice("attention_bias", config.grouped().bias, AttentionBias::all, AttentionBias::none);
    keys.integer({"num_experts", "num_local_experts"}, config.moe.experts);
    keys.integer("num_experts_per_tok", config.moe.top_k);
    keys.truth("norm_topk_prob", config.moe.normalise);
    keys.balance(config, balance);
}

DecoderConfig flavor(const char* name, int64_t dim, int64_t layers, int64_t vocab, const MoeConfig& experts) {
    DecoderConfig config = {
        .family = "olmoe",
        .flavor = name,
        .dim = dim,
        .layers = layers,
        .vocab = vocab,
        .attention =
            GroupedAttentionConfig{
                .heads = 16, .kv_heads = 16, .head_dim = dim / 16, .qk_norm = QkNorm::all_heads},
        .moe = experts,
        .rope = {.layout = RopeLayout::half_split},
        .max_seq_len = 4096};
    set_router_aux_loss_coef(config, balance);
    return config;
}

}  // namespace

}  // namespace coeus::olmoe

namespace coeus {

ModelFamily olmoe_family() {
    using namespace olmoe;
    return {.name = "olmoe",
            .flavors = {flavor("debugmodel", 256, 4, 2048, experts_of(16, 64)),
                        flavor("1B-7B", 2048, 16, 50304, experts_of(64, 1024))},
            .architectures = {"OlmoeForCausalLM"},
            .model_types = {"olmoe"},
            .hub_keys = hub_keys,
            .hub_places = usual_hub_places,
            .hub_ignores = usually_ignored_in_hub,
            .init = usual_init};
}

}  // namespace coeus
