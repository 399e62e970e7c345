// SPDX-License-Identifier: Apache-2.0
// Llama 2 (Touvron et al. 2023) and Llama 3, 3.1, 3.2 (Grattafiori et al. 2024): flavours and Hugging Face
// names.
#include "llama.hpp"

namespace coeus {

namespace {

struct Row {
    const char* flavor;
    int64_t dim, layers, heads, kv_heads;
    FfnRule ffn_rule = {};
    bool tied = false;
};

DecoderConfig llama(const char* family, const Row& row, int64_t vocab, double theta) {
    return {.family = family,
            .flavor = row.flavor,
            .dim = row.dim,
            .layers = row.layers,
            .heads = row.heads,
            .kv_heads = row.kv_heads,
            .head_dim = row.dim / row.heads,
            .ffn_hidden = row.ffn_rule.width(row.dim),
            .vocab = vocab,
            .ffn_rule = row.ffn_rule,
            .rope_theta = theta,
            .rope_scaling = {},
            .tied = row.tied};
}

HubName llama_hub_name(const std::string& parameter, const DecoderConfig& config) {
    if (parameter == "tok_embeddings.weight") return {"model.embed_tokens.weight"};
    if (parameter == "norm.weight") return {"model.norm.weight"};
    if (parameter == "output.weight") return {"lm_head.weight"};
    // layers.<i>.<part>.weight
    const size_t after = parameter.find('.', std::string("layers.").size());
    const std::string prefix = "model." + parameter.substr(0, after + 1), part = parameter.substr(after + 1);
    if (part == "attention_norm.weight") return {prefix + "input_layernorm.weight"};
    if (part == "ffn_norm.weight") return {prefix + "post_attention_layernorm.weight"};
    if (part == "attention.wq.weight") return {prefix + "self_attn.q_proj.weight", config.heads};
    if (part == "attention.wk.weight") return {prefix + "self_attn.k_proj.weight", config.kv_heads};
    if (part == "attention.wv.weight") return {prefix + "self_attn.v_proj.weight"};
    if (part == "attention.wo.weight") return {prefix + "self_attn.o_proj.weight"};
    if (part == "feed_forward.w1.weight") return {prefix + "mlp.gate_proj.weight"};
    if (part == "feed_forward.w2.weight") return {prefix + "mlp.down_proj.weight"};
    if (part == "feed_forward.w3.weight") return {prefix + "mlp.up_proj.weight"};
    throw LogicError("no Hugging Face name for " + parameter);
}

}  // namespace

ModelFamily llama2_family() {
    ModelFamily family{"llama2", {}, "LlamaForCausalLM", llama_hub_name};
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
        family.flavors.push_back(llama("llama2", row, debug ? 2048 : 32000, 10000));
    }
    return family;
}

ModelFamily llama3_family() {
    ModelFamily family{"llama3", {}, "LlamaForCausalLM", llama_hub_name};
    const Row rows[] = {
        {"debugmodel", 256, 6, 16, 16},           {"1B", 2048, 16, 32, 8, {1.5, 1024}, true},
        {"3B", 3072, 28, 24, 8, {1, 1024}, true}, {"8B", 4096, 32, 32, 8, {1.3, 1024}},
        {"70B", 8192, 80, 64, 8, {1.3, 4096}},    {"405B", 16384, 126, 128, 8, {1.2, 4096}},
    };
    for (const Row& row : rows) {
        const bool debug = std::string(row.flavor) == "debugmodel";
        DecoderConfig config = llama("llama3", row, debug ? 2048 : 128256, 500000);
        config.rope_scaling = RopeScaling{};
        family.flavors.push_back(config);
    }
    return family;
}

}  // namespace coeus
