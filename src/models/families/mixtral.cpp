// SPDX-License-Identifier: Apache-2.0
// Mixtral (Jiang et al. 2024): Mistral with experts in every layer; the scores
// of a token's experts are divided by their sum.
#include "coeus/models/family.hpp"
#include "coeus/models/hub_keys.hpp"
#include "coeus/models/parts/moe.hpp"

#include <array>

namespace coeus::mixtral {

namespace {

MoeConfig experts_of(int64_t hidden) {
    return {.experts = 8, .top_k = 2, .hidden = hidden, .normalise = true};
}

void hub_keys(HubKeys& keys, DecoderConfig& config) {
    // transformers' defaults
    keys.usual_of_experts(config, {.attention = GroupedAttentionConfig{.kv_heads = 8},
                                   .moe = experts_of(0),
                                   .rope = {.theta = 1e6, .layout = RopeLayout::half_split},
                                   .max_seq_len = 131072});
    keys.silu();
    keys.rope(config);
    keys.window(config, {.in_all_layers = true, .writes_lists = false});
    keys.integer({"num_local_experts", "num_experts"}, config.moe.experts);
    keys.integer("num_experts_per_tok", config.moe.top_k);
    keys.balance(config);
}

DecoderConfig flavor(const FlavorSizes& sizes, int64_t width, int64_t max_seq_len) {
    DecoderConfig model = with_sizes({.family = "mixtral",
                                      .attention = GroupedAttentionConfig{},
                                      .moe = experts_of(width),
                                      .rope = {.theta = 1e6, .layout = RopeLayout::half_split},
                                      .max_seq_len = max_seq_len},
                                     sizes);
    set_router_aux_loss_coef(model, usual_router_aux_loss_coef);
    return model;
}

constexpr std::array names = {HubName{"moe.router.gate.weight", "block_sparse_moe.gate.weight"}};

std::vector<HubPlace> hub_places(const std::string& parameter, const Shape& shape,
                                 const DecoderConfig& config) {
    const ExpertNames experts = {.experts = "block_sparse_moe.experts", .w1 = "w1", .w2 = "w2", .w3 = "w3"};
    if (auto places = usual_expert_places(parameter, shape, experts)) return *std::move(places);
    return hub_places_by(names, parameter, shape, config);
}

}  // namespace

}  // namespace coeus::mixtral

namespace coeus {

ModelFamily mixtral_family() {
    using namespace mixtral;
    return {.name = "mixtral",
            .flavors = {flavor({"debugmodel", 256, 4, 16, 8, 16, 0, 2048}, 256, 2048),
                        flavor({"8x7B", 4096, 32, 32, 8, 128, 0, 32000}, 14336, 32768),
                        flavor({"8x22B", 6144, 56, 48, 8, 128, 0, 32000}, 16384, 65536)},
            .architectures = {"MixtralForCausalLM"},
            .model_types = {"mixtral"},
            .hub_keys = hub_keys,
            .hub_places = hub_places,
            .hub_ignores = usually_ignored_in_hub,
            .init = usual_init};
}

}  // namespace coeus
