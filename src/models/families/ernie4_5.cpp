// SPDX-License-Identifier: Apache-2.0
// ERNIE 4.5 (Baidu 2025), dense and with experts: Llama with RoPE of neighbouring columns. Its router adds
// biases to the softmax for the choice alone.
#include "coeus/models/family.hpp"
#include "coeus/models/hub_keys.hpp"

#include <algorithm>

namespace coeus::ernie4_5 {

namespace {

constexpr const char *dense = "Ernie4_5ForCausalLM", *with_experts = "Ernie4_5_MoeForCausalLM";

// transformers' defaults, which are those of the 21B
const MoeConfig usual_experts = {.experts = 64,
                                 .top_k = 6,
                                 .hidden = 1536,
                                 .shared_hidden = 2 * 1536,
                                 .normalise = true,
                                 .balance_rate = 1e-3,
                                 .keeps_bias = true};

// Each "moe_layer_interval"-th layer from a first to a last one.
void expert_layers(HubKeys& keys, DecoderConfig& config) {
    int64_t start = 0, end = config.layers - 1, interval = std::max<int64_t>(config.moe_layers.period, 1);
    while (start < config.layers && !config.moe_layers.has(start)) ++start;
    while (end > start && !config.moe_layers.has(end)) --end;
    keys.integer("moe_layer_start_index", start, 0);
    keys.integer("moe_layer_end_index", end, -1);
    keys.integer("moe_layer_interval", interval);
    if (!keys.reads()) return;
    std::vector<bool> has;
    for (int64_t i = 0; i < config.layers; ++i)
        has.push_back(i >= start && (end == -1 || i <= end) && (i + 1) % interval == 0);
    const bool has_any = std::ranges::find(has, true) != has.end();
    config.moe_layers = has_any ? LayerChoice::of(has, {}) : LayerChoice{.first = config.layers};
}

void hub_keys(HubKeys& keys, DecoderConfig& config) {
    const bool has_experts = keys.architecture(with_experts, config.moe.experts > 0);
    DecoderConfig absent = {.attention = GroupedAttentionConfig{.kv_heads = has_experts ? 4 : 2,
                                                                .head_dim = has_experts ? 0 : 128},
                            .rope = {.theta = 500000},
                            .tied = true};
    if (has_experts) absent.moe = usual_experts, absent.moe_layers = {.first = 1};
    keys.usual(config, absent);
    keys.silu();
    keys.constant("use_bias", false, "biases are not implemented yet");
    keys.rope(config);
    if (!has_experts) return;
    keys.shared_experts(config.moe, {.experts = {"moe_num_experts", "num_experts"},
                                     .top_k = {"moe_k", "num_experts_per_tok"},
                                     .shared = "moe_num_shared_experts",
                                     .scale = nullptr});
    keys.constant("moe_norm_min", 1e-12, "others are not implemented yet");
    expert_layers(keys, config);
    keys.idle({"output_router_logits", "router_aux_loss_coef"});
}

std::vector<HubPlace> hub_places(const std::string& parameter, const Shape& shape,
                                 const DecoderConfig& config) {
    if (!parameter.ends_with(".moe.expert_bias")) return usual_hub_places(parameter, shape, config);
    const std::string layer = parameter.substr(0, parameter.find(".moe."));
    HubPlace place = HubPlace::whole("model." + layer + ".mlp.moe_statics.e_score_correction_bias", shape);
    place.shape = {1, shape.count()};
    place.keeps_f32 = true;  // the choice of experts depends on it
    return {place};
}

DecoderConfig flavor(const FlavorSizes& sizes, const MoeConfig& experts = {}, int64_t dense_layers = 1) {
    return with_sizes({.family = "ernie4_5",
                       .attention = GroupedAttentionConfig{},
                       .moe = experts,
                       .moe_layers = {.first = experts.experts > 0 ? dense_layers : 0},
                       .rope = {.theta = 500000},
                       .tied = true},
                      sizes);
}

}  // namespace

}  // namespace coeus::ernie4_5

namespace coeus {

ModelFamily ernie4_5_family() {
    using namespace ernie4_5;
    MoeConfig small = usual_experts, large = usual_experts;
    small.experts = 16, small.hidden = 64, small.shared_hidden = 128;
    large.top_k = 8, large.hidden = 3584, large.shared_hidden = 0;
    return {.name = "ernie4_5",
            .flavors = {flavor({"debugmodel", 256, 6, 16, 4, 16, 768, 2048}),
                        flavor({"debugmodel_moe", 256, 4, 16, 4, 16, 768, 2048}, small),
                        flavor({"0.3B", 1024, 18, 16, 2, 128, 3072, 103424}),
                        flavor({"21B-A3B", 2560, 28, 20, 4, 128, 12288, 103424}, usual_experts),
                        flavor({"300B-A47B", 8192, 54, 64, 8, 128, 28672, 103424}, large, 3)},
            .architectures = {dense, with_experts},
            .model_types = {"ernie4_5", "ernie4_5_moe"},
            .hub_keys = hub_keys,
            .hub_places = hub_places,
            .hub_ignores = usually_ignored_in_hub,
            .init = usual_init};
}

}  // namespace coeus
