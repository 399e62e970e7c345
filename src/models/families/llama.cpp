// SPDX-License-Identifier: Apache-2.0
// Llama 2 (Touvron et al. 2023) and Llama 3, 3.1, 3.2 (Grattafiori et al. 2024). Their config.json differ
// only in numbers.
#include "coeus/models/family.hpp"
#include "coeus/models/hub_keys.hpp"

namespace coeus::llama {

namespace {

struct Row {
    const char* flavor;
    int64_t dim, layers, heads, kv_heads;
    FfnRule ffn_rule = {};
    bool tied = false;
};

DecoderConfig flavor(const char* family, const Row& row, int64_t vocab, const RopeConfig& rope) {
    return {.family = family,
            .flavor = row.flavor,
            .dim = row.dim,
            .layers = row.layers,
            .vocab = vocab,
            .attention =
                GroupedAttentionConfig{
                    .heads = row.heads, .kv_heads = row.kv_heads, .head_dim = row.dim / row.heads},
            .feed_forward = {.hidden = row.ffn_rule.width(row.dim)},
            .ffn_rule = row.ffn_rule,
            .rope = rope,
            .tied = row.tied};
}

void hub_keys(HubKeys& keys, DecoderConfig& config) {
    keys.usual(config, {.norm_eps = 1e-6, .max_seq_len = 2048});  // transformers' defaults
    keys.silu();
    keys.constant("mlp_bias", false, "biases are not implemented yet");
    keys.rope(config);
    keys.choice("attention_bias", config.grouped().bias, AttentionBias::all, AttentionBias::none);
}

// In Hugging Face folders, queries and keys are in half-split order.
std::vector<HubPlace> hub_places(const std::string& parameter, const Shape& shape,
                                 const DecoderConfig& config) {
    const bool is_rotated = config.rope.layout == RopeLayout::interleaved &&
                            (parameter.find("attention.wq.") != std::string::npos ||
                             parameter.find("attention.wk.") != std::string::npos);
    const HeadSizes a = config.head_sizes();
    HubPlace place =
        HubPlace::whole(usual_hub_name(parameter), shape, is_rotated ? shape.rows() / a.head_dim : 0);
    if (is_rotated && a.rotated_dim < a.head_dim) place.rotated_rows = a.rotated_dim;
    return {place};
}

ModelFamily family_named(const char* name) {
    return {.name = name,
            .flavors = {},
            .architectures = {"LlamaForCausalLM"},
            .model_types = {"llama"},
            .hub_keys = hub_keys,
            .hub_places = hub_places,
            .hub_ignores = usually_ignored_in_hub,
            .init = usual_init};
}

}  // namespace

}  // namespace coeus::llama

namespace coeus {

ModelFamily llama2_family() {
    using namespace llama;
    ModelFamily family = family_named("llama2");
    const Row rows[] = {
        {"debugmodel", 256, 8, 16, 16},
        {"271M", 1024, 16, 8, 8},
        {"1B", 2048, 18, 16, 16},
        {"7B", 4096, 32, 32, 32},
        {"13B", 5120, 40, 40, 40},
        {"26B", 5120, 80, 40, 40},
        {"70B", 8192, 80, 64, 8, {1.3, 4096}},
    };
    for (const Row& row : rows) {
        const bool debug = std::string(row.flavor) == "debugmodel";
        family.flavors.push_back(flavor("llama2", row, debug ? 2048 : 32000, {.theta = 10000}));
    }
    return family;
}

ModelFamily llama3_family() {
    using namespace llama;
    ModelFamily family = family_named("llama3");
    const Row rows[] = {
        {"debugmodel", 256, 6, 16, 16},           {"1B", 2048, 16, 32, 8, {1.5, 1024}, true},
        {"3B", 3072, 28, 24, 8, {1, 1024}, true}, {"8B", 4096, 32, 32, 8, {1.3, 1024}},
        {"70B", 8192, 80, 64, 8, {1.3, 4096}},    {"405B", 16384, 126, 128, 8, {1.2, 4096}},
    };
    for (const Row& row : rows) {
        const bool debug = std::string(row.flavor) == "debugmodel";
        family.flavors.push_back(
            flavor("llama3", row, debug ? 2048 : 128256, {.theta = 500000, .scaling = Llama3Scaling{}}));
    }
    return family;
}

}  // namespace coeus
