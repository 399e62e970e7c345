// SPDX-License-Identifier: Apache-2.0
// Granite 3 (IBM 2024): Llama with factors of the embedding, of sublayers, of scores and of logits; and with
// experts, perhaps shared ones too.
#include "coeus/models/family.hpp"
#include "coeus/models/hub_keys.hpp"

#include <array>

namespace coeus::granite {

namespace {

void hub_keys(HubKeys& keys, DecoderConfig& config) {
    MoeConfig& m = config.moe;
    const bool has_shared = keys.architecture("GraniteMoeSharedForCausalLM", m.shared_hidden > 0);
    const bool has_routed = keys.architecture("GraniteMoeForCausalLM", m.experts > 0 && !has_shared);
    // transformers' defaults
    DecoderConfig absent = {.attention = GroupedAttentionConfig{.scale = 1},
                            .rope = {.layout = RopeLayout::half_split},
                            .norm_eps = 1e-6,
                            .max_seq_len = 2048};
    if (has_shared || has_routed) {
        absent.moe = {.experts = 8, .top_k = 2, .normalise = true};
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

constexpr std::array names = {HubName{"moe.router.gate.weight", "block_sparse_moe.router.layer.weight"},
                              HubName{"moe.experts.w2", "block_sparse_moe.output_linear.weight"},
                              HubName{"moe.shared_experts.w2.weight", "shared_mlp.output_linear.weight"}};

// One tensor has gate and up of all experts, or of the shared ones.
std::vector<HubPlace> hub_places(const std::string& parameter, const Shape& shape,
                                 const DecoderConfig& config) {
    const int64_t width = config.moe.hidden, shared = config.moe.shared_hidden;
    const std::array stacks = {
        HubStack{"block_sparse_moe.input_linear.weight",
                 {{"moe.experts.w1", width}, {"moe.experts.w3", width}}},
        HubStack{"shared_mlp.input_linear.weight",
                 {{"moe.shared_experts.w1.weight", shared}, {"moe.shared_experts.w3.weight", shared}}}};
    if (auto places = places_in(stacks, parameter, shape); !places.empty()) return places;
    return hub_places_by(names, parameter, shape, config);
}

// The weights of a token's experts are a softmax over the logits of these.
DecoderConfig flavor(const FlavorSizes& sizes, double logits_scaling, double theta = 10000,
                     int64_t max_seq_len = 4096, int64_t experts = 0, double norm_eps = 1e-5) {
    DecoderConfig model =
        with_sizes({.family = "granite",
                    .attention = GroupedAttentionConfig{.scale = 1 / double(sizes.head_dim)},
                    .rope = {.theta = theta, .layout = RopeLayout::half_split},
                    .norm_eps = norm_eps,
                    .tied = true,
                    .embedding_scale = 12,
                    .residual_scale = 0.22,
                    .logits_scale = 1 / logits_scaling,
                    .max_seq_len = max_seq_len},
                   sizes);
    if (experts > 0) model.moe = {.experts = experts, .top_k = 8, .hidden = 512, .normalise = true};
    set_router_aux_loss_coef(model, usual_router_aux_loss_coef);
    return model;
}

}  // namespace

}  // namespace coeus::granite

namespace coeus {

ModelFamily granite_family() {
    using namespace granite;
    return {.name = "granite",
            .flavors = {flavor({"debugmodel", 256, 6, 16, 8, 16, 768, 2048}, 8, 1e4, 2048),
                        flavor({"3.0-2B", 2048, 40, 32, 8, 64, 8192, 49155}, 8),
                        flavor({"3.0-8B", 4096, 40, 32, 8, 128, 12800, 49155}, 16),
                        flavor({"3.0-1B-A400M", 1024, 24, 16, 8, 64, 0, 49155}, 6, 1e4, 4096, 32),
                        flavor({"3.0-3B-A800M", 1536, 32, 24, 8, 64, 0, 49155}, 6, 1e4, 4096, 40),
                        flavor({"3.1-2B", 2048, 40, 32, 8, 64, 8192, 49152}, 8, 5e6, 131072),
                        flavor({"3.1-8B", 4096, 40, 32, 8, 128, 12800, 49152}, 16, 1e7, 131072),
                        flavor({"3.1-1B-A400M", 1024, 24, 16, 8, 64, 0, 49155}, 6, 1.5e6, 131072, 32, 1e-6),
                        flavor({"3.3-2B", 2048, 40, 32, 8, 64, 8192, 49159}, 8, 1e7, 131072),
                        flavor({"3.3-8B", 4096, 40, 32, 8, 128, 12800, 49159}, 16, 1e7, 131072)},
            .architectures = {"GraniteForCausalLM", "GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"},
            .model_types = {"granite", "granitemoe", "granitemoeshared"},
            .hub_keys = hub_keys,
            .hub_places = hub_places,
            .hub_ignores = usually_ignored_in_hub,
            .init = usual_init};
}

}  // namespace coeus
