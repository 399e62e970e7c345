// SPDX-License-Identifier: Apache-2.0
// GLM-4.7-Flash: the layers of DeepSeek V3, without groups of experts.
#include "coeus/models/family.hpp"
#include "coeus/models/hub_keys.hpp"

namespace coeus::glm4_moe_lite {

namespace {

// transformers' defaults, which are those of GLM-4.7-Flash
const LatentAttentionConfig usual_attention = {
    .head_dim = 256, .value_dim = 256, .kv_rank = 512, .q_rank = 768, .rope_dim = 64};
const MoeConfig usual_experts = {.experts = 64,
                                 .top_k = 4,
                                 .hidden = 1536,
                                 .shared_hidden = 1536,
                                 .score = ScoreFunction::sigmoid,
                                 .normalise = true,
                                 .scale = 1.8,
                                 .balance_rate = 1e-3,
                                 .keeps_bias = true};

void hub_keys(HubKeys& keys, DecoderConfig& config) {
    keys.usual(config, {.attention = usual_attention,
                        .moe = usual_experts,
                        .moe_layers = {.first = 1},
                        .max_seq_len = 202752});
    keys.silu();
    keys.constant("attention_bias", false, "biases are not implemented yet");
    keys.rope(config);
    keys.choice("rope_interleave", config.rope.layout, RopeLayout::interleaved, RopeLayout::half_split);
    keys.latent_attention(config.latent());
    keys.shared_experts(config.moe);
    keys.expert_groups(config.moe);
    keys.layers({"mlp_layer_types", "sparse", "dense"}, config, config.moe_layers);
    keys.integer("num_nextn_predict_layers", config.mtp.layers, 0);
    // the list says which layers are dense
    keys.idle({"output_router_logits", "first_k_dense_replace"});
}

DecoderConfig flavor(const char* name, int64_t dim, int64_t layers, int64_t heads, int64_t hidden,
                     int64_t vocab) {
    LatentAttentionConfig attention = usual_attention;
    attention.heads = heads;
    return {.family = "glm4_moe_lite",
            .flavor = name,
            .dim = dim,
            .layers = layers,
            .vocab = vocab,
            .attention = attention,
            .feed_forward = {.hidden = hidden},
            .moe = usual_experts,
            .moe_layers = {.first = 1},
            .rope = {.theta = 1e6},
            .max_seq_len = 202752};
}

}  // namespace

}  // namespace coeus::glm4_moe_lite

namespace coeus {

ModelFamily glm4_moe_lite_family() {
    using namespace glm4_moe_lite;
    ModelFamily family = {.name = "glm4_moe_lite",
                          .flavors = {},
                          .architectures = {"Glm4MoeLiteForCausalLM"},
                          .model_types = {"glm4_moe_lite"},
                          .hub_keys = hub_keys,
                          .hub_places = deepseek_hub_places,
                          .hub_ignores = deepseek_hub_ignores,
                          .hub_copy_of = deepseek_hub_copy_of,
                          .init = usual_init};
    DecoderConfig small = flavor("debugmodel", 256, 4, 8, 768, 2048);
    small.moe.experts = 16;
    small.moe.hidden = small.moe.shared_hidden = 64;
    family.flavors = {small, flavor("4.7-Flash", 2048, 47, 20, 10240, 154880)};
    return family;
}

}  // namespace coeus
