// SPDX-License-Identifier: Apache-2.0
// Granite 3 (IBM 2024): Llama with factors of the embedding, of sublayers, of scores and of logits; and with
// experts, perhaps shared ones too.
#include "coeus/models/family.hpp"
#include "coeus/models/hub_keys.hpp"
#include "coeus/models/parts/moe.hpp"

#include <array>

namespace coeus::granite {

namespace {

struct Row {
    const char* flavor;
    int64_t dim, layers, heads, kv_heads, hidden;
    double logits_scaling;
    int64_t experts = 0, vocab = 49155, max_seq_len = 4096;
};

// The weights of a token's experts are a softmax over the logits of these.
MoeConfig experts_of(int64_t experts, int64_t hidden, int64_t top_k) {
    return {.experts = experts, .top_k = top_k, .hidden = hidden, .normalise = true};
}

void hub_keys(HubKeys& keys, DecoderConfig& config) {
    MoeConfig& m = config.moe;
    const bool has_shared = keys.architecture("GraniteMoeSharedForCausalLM", m.shared_hidden > 0),
               has_experts =
                   keys.architecture("GraniteMoeForCausalLM", m.experts > 0 && m.shared_hidden == 0) ||
                   has_shared;
    // transformers' defaults
    DecoderConfig absent = {.attention = GroupedAttentionConfig{.scale = 1},
                            .rope = {.layout = RopeLayout::half_split},
                            .norm_eps = 1e-6,
                            .max_seq_len = 2048};
    if (has_experts) {
        absent.moe = experts_of(8, 0, 2);
        keys.usual_of_experts(config, absent);
        keys.integer("num_local_experts", m.experts);
        keys.integer("num_experts_per_tok", m.top_k);
        keys.balance(config);
    } else {
        keys.usual(config, absent);
        keys.constant("mlp_bias", false, "biases are not implemented yet");
    }
    if (has_shared) keys.integer("shared_intermediate_size", m.shared_hidden, 0);
    keys.silu();
    keys.rope(config);
    keys.choice("attention_bias", config.grouped().bias, AttentionBias::all, AttentionBias::none);
    keys.positive("embedding_multiplier", config.embedding_scale);
    keys.positive("residual_multiplier", config.residual_scale);
    keys.positive("attention_multiplier", config.grouped().scale);
    double divisor = without_last_digits(1 / config.logits_scale);
    keys.positive("logits_scaling", divisor);
    config.logits_scale = 1 / divisor;
}

// One tensor has gate and up of a feed-forward layer, or of all experts.
std::vector<HubPlace> half_of(const std::string& name, const Shape& shape, bool second) {
    const int64_t rows = shape[shape.rank - 2];
    return stacked_hub_places(name, shape, 2 * rows, second ? rows : 0);
}

constexpr std::array names = {HubName{"moe.router.gate.weight", "block_sparse_moe.router.layer.weight"},
                              HubName{"moe.experts.w2", "block_sparse_moe.output_linear.weight"},
                              HubName{"moe.shared_experts.w2.weight", "shared_mlp.output_linear.weight"}};
constexpr std::array names_of_gate = {
    HubName{"moe.experts.w1", "block_sparse_moe.input_linear.weight"},
    HubName{"moe.shared_experts.w1.weight", "shared_mlp.input_linear.weight"}};
constexpr std::array names_of_up = {
    HubName{"moe.experts.w3", "block_sparse_moe.input_linear.weight"},
    HubName{"moe.shared_experts.w3.weight", "shared_mlp.input_linear.weight"}};

std::vector<HubPlace> hub_places(const std::string& parameter, const Shape& shape,
                                 const DecoderConfig& config) {
    if (const std::string name = hub_name_in(names, parameter); !name.empty())
        return {HubPlace::whole(name, shape)};
    if (const std::string name = hub_name_in(names_of_gate, parameter); !name.empty())
        return half_of(name, shape, false);
    if (const std::string name = hub_name_in(names_of_up, parameter); !name.empty())
        return half_of(name, shape, true);
    return usual_hub_places(parameter, shape, config);
}

}  // namespace

}  // namespace coeus::granite

namespace coeus {

ModelFamily granite_family() {
    using namespace granite;
    ModelFamily family = {
        .name = "granite",
        .flavors = {},
        .architectures = {"GraniteForCausalLM", "GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"},
        .model_types = {"granite", "granitemoe", "granitemoeshared"},
        .hub_keys = hub_keys,
        .hub_places = hub_places,
        .hub_ignores = usually_ignored_in_hub,
        .init = usual_init};
    const Row rows[] = {
        {"debugmodel", 256, 6, 16, 8, 768, 8, 0, 2048, 2048},
        {"3.0-2B", 2048, 40, 32, 8, 8192, 8},
        {"3.0-8B", 4096, 40, 32, 8, 12800, 16},
        {"3.0-1B-A400M", 1024, 24, 16, 8, 512, 6, 32},
        {"3.0-3B-A800M", 1536, 32, 24, 8, 512, 6, 40},
    };
    for (const Row& row : rows) {
        const int64_t head_dim = row.dim / row.heads;
        const bool dense = row.experts == 0;
        family.flavors.push_back({.family = family.name,
                                  .flavor = row.flavor,
                                  .dim = row.dim,
                                  .layers = row.layers,
                                  .vocab = row.vocab,
                                  .attention = GroupedAttentionConfig{.heads = row.heads,
                                                                      .kv_heads = row.kv_heads,
                                                                      .head_dim = head_dim,
                                                                      .scale = 1 / double(head_dim)},
                                  .feed_forward = {.hidden = dense ? row.hidden : 0},
                                  .moe = dense ? MoeConfig() : experts_of(row.experts, row.hidden, 8),
                                  .rope = {.layout = RopeLayout::half_split},
                                  .tied = true,
                                  .embedding_scale = 12,
                                  .residual_scale = 0.22,
                                  .logits_scale = 1 / row.logits_scaling,
                                  .max_seq_len = row.max_seq_len});
        set_router_aux_loss_coef(family.flavors.back(), usual_router_aux_loss_coef);
    }
    return family;
}

}  // namespace coeus
