// SPDX-License-Identifier: Apache-2.0
// gpt-oss (OpenAI 2025, gpt-oss-120b and gpt-oss-20b Model Card, section 2): a window in every second layer,
// a sink for each head, biases everywhere, YaRN, and experts with a clamped activation function.
#include "coeus/models/family.hpp"
#include "coeus/models/hub_keys.hpp"

#include <array>
#include <cmath>

namespace coeus::gpt_oss {

namespace {

struct Row {
    const char* flavor;
    int64_t dim, layers, experts;
    int64_t vocab = 201088;
};

constexpr int64_t usual_window = 128;
const LayerChoice every_second = {.period = 2};
constexpr Gate usual_gate = {.limit = 7, .alpha = 1.702, .shift = 1, .interleaved = true};
constexpr YarnScaling usual_scaling = {.factor = 32, .original_positions = 4096, .truncate = false};

MoeConfig experts_of(int64_t experts, int64_t hidden) {
    return {.experts = experts,
            .top_k = 4,
            .hidden = hidden,
            .normalise = true,
            .router_bias = true,
            .biases = true,
            .gate = usual_gate,
            .balance_rate = 1e-3};
}

DecoderConfig flavor(const Row& row) {
    return {.family = "gpt_oss",
            .flavor = row.flavor,
            .dim = row.dim,
            .layers = row.layers,
            .vocab = row.vocab,
            .attention = GroupedAttentionConfig{.heads = 64,
                                                .kv_heads = 8,
                                                .head_dim = 64,
                                                .bias = AttentionBias::all,
                                                .sinks = true,
                                                .window = usual_window},
            .windowed = every_second,
            .moe = experts_of(row.experts, 2880),
            .rope = {.theta = 150000, .scaling = usual_scaling, .layout = RopeLayout::half_split}};
}

void hub_keys(HubKeys& keys, DecoderConfig& config) {
    // transformers' defaults
    keys.usual_of_experts(
        config, {.attention = GroupedAttentionConfig{.kv_heads = 8,
                                                     .head_dim = 64,
                                                     .bias = AttentionBias::all,
                                                     .sinks = true,
                                                     .window = usual_window},
                 .windowed = every_second,
                 .moe = experts_of(128, 0),
                 .rope = {.theta = 150000, .scaling = usual_scaling, .layout = RopeLayout::half_split}});
    MoeConfig& m = config.moe;
    keys.silu();
    keys.rope(config);
    // transformers does not run a null window, not even if no layer has it
    keys.window(config, {.without_any = usual_window});
    keys.integer("num_local_experts", m.experts);
    keys.integer({"num_experts_per_tok", "experts_per_token"}, m.top_k);
    keys.number("swiglu_limit", m.gate.limit);
    keys.number("swiglu_alpha", m.gate.alpha);
    keys.choice("attention_bias", config.grouped().bias, AttentionBias::all, AttentionBias::none);
    keys.balance(config);
    keys.idle({"initial_context_length"});
}

constexpr std::array names = {HubName{"moe.router.gate.weight", "mlp.router.weight"},
                              HubName{"moe.router.gate.bias", "mlp.router.bias"},
                              HubName{"moe.experts.mlp1_bias", "mlp.experts.gate_up_proj_bias"},
                              HubName{"moe.experts.mlp2_bias", "mlp.experts.down_proj_bias"}};

std::vector<HubPlace> hub_places(const std::string& parameter, const Shape& shape,
                                 const DecoderConfig& config) {
    const size_t at = parameter.find(".moe.");
    if (at == std::string::npos) return usual_hub_places(parameter, shape, config);
    if (const std::string name = hub_name_in(names, parameter); !name.empty())
        return {HubPlace::whole(name, shape)};
    const std::string_view name = std::string_view(parameter).substr(at + 1);
    const std::string mlp = "model." + parameter.substr(0, at) + ".mlp.";
    if (name == "moe.expert_bias") return {};
    if (name == "moe.experts.mlp1_weight")
        return transposed_hub_places(mlp + "experts.gate_up_proj", shape, shape[1], 0);
    if (name == "moe.experts.mlp2_weight")
        return transposed_hub_places(mlp + "experts.down_proj", shape, shape[1], 0);
    throw LogicError("no Hugging Face name for " + parameter);
}

// torchtitan's rules: all matrices, sinks and biases of experts are narrower in later layers.
Init init(WeightRole role, int64_t layer, const DecoderConfig& config) {
    const Init in_layer = Init::normal(0.02 / std::sqrt(2.0 * double(layer + 1)));
    const bool of_2025 = config.initial_values == InitialValues::of_2025;
    switch (role) {
        case WeightRole::embedding:
            return of_2025 || config.tied ? usual_init(role, layer, config) : Init::normal(0.02);
        case WeightRole::attention_bias: return of_2025 ? in_layer : Init{};
        case WeightRole::attention_in:
        case WeightRole::gate: return in_layer;
        default: return usual_init(role, layer, config);
    }
}

}  // namespace

}  // namespace coeus::gpt_oss

namespace coeus {

ModelFamily gpt_oss_family() {
    using namespace gpt_oss;
    const Row rows[] = {{"debugmodel", 256, 4, 8, 2048}, {"20b", 2880, 24, 32}, {"120b", 2880, 36, 128}};
    ModelFamily family = {.name = "gpt_oss",
                          .flavors = {},
                          .architectures = {"GptOssForCausalLM"},
                          .model_types = {"gpt_oss"},
                          .hub_keys = hub_keys,
                          .hub_places = hub_places,
                          .hub_ignores = usually_ignored_in_hub,
                          .init = init};
    for (const Row& row : rows) family.flavors.push_back(flavor(row));
    return family;
}

}  // namespace coeus
