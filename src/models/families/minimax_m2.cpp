// SPDX-License-Identifier: Apache-2.0
// MiniMax-M2 (MiniMax 2025): experts in every layer, chosen as in DeepSeek V3 without groups, RoPE of half of
// a head, and norms of the queries and keys of all heads together.
#include "coeus/models/family.hpp"
#include "coeus/models/hub_keys.hpp"
#include "coeus/models/parts/moe.hpp"

#include <array>

namespace coeus::minimax_m2 {

namespace {

MoeConfig experts_of(int64_t experts, int64_t top_k, int64_t hidden) {
    return {.experts = experts,
            .top_k = top_k,
            .hidden = hidden,
            .score = ScoreFunction::sigmoid,
            .normalise = true,
            .balance_rate = 1e-3,
            .keeps_bias = true};
}

constexpr RopeConfig usual_rope = {.theta = 5e6, .layout = RopeLayout::half_split};

// "rotary_dim" is the older form of partial_rotary_factor, which goes before it.
void rotated_columns(HubKeys& keys, GroupedAttentionConfig& attention) {
    int64_t columns = attention.rotated_dim();
    keys.integer("rotary_dim", columns);
    if (keys.reads()) attention.rope_fraction = double(columns) / double(attention.head_dim);
}

void hub_keys(HubKeys& keys, DecoderConfig& config) {
    // transformers' defaults
    keys.usual_of_experts(
        config,
        {.attention = GroupedAttentionConfig{.kv_heads = 8, .head_dim = 128, .qk_norm = QkNorm::all_heads},
         .moe = experts_of(256, 8, 0),
         .rope = usual_rope,
         .norm_eps = 1e-6,
         .max_seq_len = 196608});
    keys.silu();
    rotated_columns(keys, config.grouped());
    keys.rope_fraction(config);
    keys.rope(config);
    keys.integer({"num_local_experts", "num_experts"}, config.moe.experts);
    keys.integer("num_experts_per_tok", config.moe.top_k);
    keys.idle({"output_router_logits", "router_aux_loss_coef", "router_jitter_noise"});
}

constexpr std::array names = {HubName{"moe.router.gate.weight", "block_sparse_moe.gate.weight"},
                              HubName{"moe.expert_bias", "block_sparse_moe.e_score_correction_bias"}};

std::vector<HubPlace> hub_places(const std::string& parameter, const Shape& shape,
                                 const DecoderConfig& config) {
    if (const std::string name = hub_name_in(names, parameter); !name.empty()) {
        HubPlace place = HubPlace::whole(name, shape);
        place.keeps_f32 = parameter.ends_with(".moe.expert_bias");  // the choice of experts depends on it
        return {place};
    }
    const ExpertNames experts = {.experts = "block_sparse_moe.experts", .w1 = "w1", .w2 = "w2", .w3 = "w3"};
    if (auto places = usual_expert_places(parameter, shape, experts)) return *std::move(places);
    return usual_hub_places(parameter, shape, config);
}

DecoderConfig flavor(const char* name, int64_t dim, int64_t layers, int64_t heads, int64_t head_dim,
                     int64_t vocab, int64_t max_seq_len, const MoeConfig& experts) {
    return {.family = "minimax_m2",
            .flavor = name,
            .dim = dim,
            .layers = layers,
            .vocab = vocab,
            .attention = GroupedAttentionConfig{.heads = heads,
                                                .kv_heads = 8,
                                                .head_dim = head_dim,
                                                .qk_norm = QkNorm::all_heads,
                                                .rope_fraction = 0.5},
            .moe = experts,
            .rope = usual_rope,
            .norm_eps = 1e-6,
            .max_seq_len = max_seq_len};
}

}  // namespace

}  // namespace coeus::minimax_m2

namespace coeus {

ModelFamily minimax_m2_family() {
    using namespace minimax_m2;
    return {.name = "minimax_m2",
            .flavors = {flavor("debugmodel", 256, 4, 16, 16, 2048, 2048, experts_of(16, 4, 64)),
                        flavor("230B-A10B", 3072, 62, 48, 128, 200064, 196608, experts_of(256, 8, 1536))},
            .architectures = {"MiniMaxM2ForCausalLM"},
            .model_types = {"minimax_m2"},
            .hub_keys = hub_keys,
            .hub_places = hub_places,
            .hub_ignores = usually_ignored_in_hub,
            .init = usual_init};
}

}  // namespace coeus
