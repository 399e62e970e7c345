// SPDX-License-Identifier: Apache-2.0
// DeepSeek V3 (DeepSeek-AI 2024): latent attention, dense layers followed by layers with routed and shared
// experts, YaRN. The flavours 16B and 236B have the shapes and the softmax router of DeepSeek V2.
#include "coeus/models/family.hpp"
#include "coeus/models/hub_keys.hpp"

namespace coeus::deepseek {

namespace {

struct Row {
    const char* flavor;
    int64_t dim, layers, dense_layers, heads, q_rank, hidden;
    int64_t experts, top_k, expert_hidden, shared_experts;
    double mscale;
    int64_t vocab = 102400;
    int64_t groups = 1, kept_groups = 1;
    double scale = 1;
    bool sigmoid = false;
};

DecoderConfig flavor(const Row& row) {
    const MoeConfig moe = {.experts = row.experts,
                           .top_k = row.top_k,
                           .hidden = row.expert_hidden,
                           .shared_hidden = row.shared_experts * row.expert_hidden,
                           .score = row.sigmoid ? ScoreFunction::sigmoid : ScoreFunction::softmax,
                           .normalise = row.sigmoid,
                           .scale = row.scale,
                           .groups = row.groups,
                           .kept_groups = row.kept_groups,
                           .balance_rate = 1e-3,
                           .keeps_bias = row.sigmoid};
    return {.family = "deepseek_v3",
            .flavor = row.flavor,
            .dim = row.dim,
            .layers = row.layers,
            .vocab = row.vocab,
            .attention = LatentAttentionConfig{.heads = row.heads,
                                               .head_dim = 192,
                                               .value_dim = 128,
                                               .kv_rank = 512,
                                               .q_rank = row.q_rank,
                                               .rope_dim = 64,
                                               .latent_norm_eps = 1e-5},
            .feed_forward = {.hidden = row.hidden},
            .moe = moe,
            .moe_layers = {.first = row.dense_layers},
            .rope = {.theta = 10000,
                     .scaling = YarnScaling{.factor = 40,
                                            .original_positions = 4096,
                                            .mscale = row.mscale,
                                            .mscale_all_dim = row.mscale}},
            .max_seq_len = 16384};
}

// The architectures of V3 and V2 differ in the router. V3's always takes the sigmoid in transformers; other
// programs, such as torchtitan with its flavour 16B, write V3 with the softmax too.
constexpr const char *v3 = "DeepseekV3ForCausalLM", *v2 = "DeepseekV2ForCausalLM";
constexpr const char *no_biases = "biases are not implemented yet",
                     *no_others = "others are not implemented yet";

// transformers' defaults
MoeConfig experts_without_keys(bool is_v2) {
    if (is_v2)  // there is no default of top_k
        return {
            .experts = 64, .top_k = 0, .hidden = 1407, .shared_hidden = 2 * 1407, .sequence_balance = 0.001};
    return {.experts = 256,
            .top_k = 8,
            .hidden = 2048,
            .shared_hidden = 2048,
            .score = ScoreFunction::sigmoid,
            .normalise = true,
            .scale = 2.5,
            .groups = 8,
            .kept_groups = 4,
            .balance_rate = 1e-3,
            .keeps_bias = true};
}

// A greedy choice has no groups. Biases have no place: the loss that balances sequences, which
// DeepSeek's class has and transformers does not.
void v2_router(HubKeys& keys, MoeConfig& m) {
    const char* has_no_other = "the architecture has no other";
    keys.constant("scoring_func", "softmax", has_no_other);
    keys.constant("topk_method", "greedy", no_others);
    keys.constant("mlp_bias", false, no_biases);
    keys.constant("norm_topk_prob", false, has_no_other);
    keys.write("n_group", m.groups);
    keys.write("topk_group", m.kept_groups);
    if (!keys.reads() && m.sequence_balance == 0 && m.has_balance_bias()) return;
    double coefficient = without_last_digits(m.sequence_balance);
    keys.number("aux_loss_alpha", coefficient);
    if (!(coefficient >= 0)) keys.json()["aux_loss_alpha"].reject("must be at least 0");
    m.sequence_balance = coefficient;
}

void v3_router(HubKeys& keys, DecoderConfig& config) {
    MoeConfig& m = config.moe;
    keys.name("scoring_func", m.score);
    const char* method = "topk_method";
    const bool is_greedy =
        keys.reads() && m.score == ScoreFunction::softmax && keys.json().string(method, "") == "greedy";
    if (!is_greedy) keys.constant(method, "noaux_tc", no_others);
    keys.expert_groups(m);
    if (is_greedy) m.groups = m.kept_groups = 1;
    keys.integer("num_nextn_predict_layers", config.mtp.layers, 0);
    keys.choice("rope_interleave", config.rope.layout, RopeLayout::interleaved, RopeLayout::half_split);
}

void hub_keys(HubKeys& keys, DecoderConfig& config) {
    const bool is_v2 =
        keys.architecture(v2, config.moe.score == ScoreFunction::softmax && !config.moe.keeps_bias);
    keys.usual(config,
               {.attention =
                    LatentAttentionConfig{
                        .head_dim = 192, .value_dim = 128, .kv_rank = 512, .q_rank = 1536, .rope_dim = 64},
                .moe = experts_without_keys(is_v2),
                .moe_layers = {.first = is_v2 ? 0 : 3},
                .norm_eps = 1e-6,
                .max_seq_len = is_v2 ? 2048 : 4096});
    keys.silu();
    keys.constant("attention_bias", false, no_biases);
    keys.constant("moe_layer_freq", 1, no_others);
    keys.rope(config);
    keys.latent_attention(config.latent());
    keys.shared_experts(config.moe);
    if (is_v2)
        v2_router(keys, config.moe);
    else
        v3_router(keys, config);
    keys.integer("first_k_dense_replace", config.moe_layers.first, 0);
    keys.idle({"output_router_logits", "router_aux_loss_coef", "aux_loss_alpha", "seq_aux", "ep_size"});
}

}  // namespace

}  // namespace coeus::deepseek

namespace coeus {

ModelFamily deepseek_v3_family() {
    using namespace deepseek;
    ModelFamily family = {.name = "deepseek_v3",
                          .flavors = {},
                          .architectures = {v3, v2},
                          .model_types = {"deepseek_v3", "deepseek_v2"},
                          .hub_keys = hub_keys,
                          .hub_places = deepseek_hub_places,
                          .hub_ignores = deepseek_hub_ignores,
                          .hub_copy_of = deepseek_hub_copy_of,
                          .init = usual_init};
    const Row rows[] = {
        {"debugmodel", 256, 6, 1, 16, 0, 1024, 8, 3, 256, 2, 0.7, 2048},
        {"16B", 2048, 27, 1, 16, 0, 10944, 64, 6, 1408, 2, 0.7},
        {"236B", 5120, 60, 1, 128, 1536, 12288, 160, 6, 1536, 2, 1, 102400, 8, 3, 16},
        {"671B", 7168, 61, 3, 128, 1536, 18432, 256, 8, 2048, 1, 1, 129280, 8, 4, 2.5, true},
    };
    for (const Row& row : rows) family.flavors.push_back(flavor(row));
    // Moonlight and Kimi K2 (Moonshot AI 2025) have the architecture of V3, without groups.
    DecoderConfig moonlight = flavor(
        {"Moonlight-16B-A3B", 2048, 27, 1, 16, 0, 11264, 64, 6, 1408, 2, 0, 163840, 1, 1, 2.446, true});
    moonlight.rope = {.theta = 50000};
    moonlight.max_seq_len = 8192;
    DecoderConfig kimi =
        flavor({"Kimi-K2", 7168, 61, 1, 64, 1536, 18432, 384, 8, 2048, 1, 1, 163840, 1, 1, 2.827, true});
    kimi.rope = {.theta = 50000,
                 .scaling = YarnScaling{.factor = 32,
                                        .original_positions = 4096,
                                        .beta_fast = 1,
                                        .beta_slow = 1,
                                        .mscale = 1,
                                        .mscale_all_dim = 1}};
    kimi.norm_eps = 1e-6;
    kimi.max_seq_len = 131072;
    for (DecoderConfig* model : {&moonlight, &kimi}) {
        model->latent().latent_norm_eps = 1e-6;
        family.flavors.push_back(*model);
    }
    return family;
}

}  // namespace coeus
