// SPDX-License-Identifier: Apache-2.0
// Llama 4 (Meta 2025, The Llama 4 herd): experts whose input is multiplied by the router's weight, and a
// shared expert. The flavours "_irope" have layers without RoPE that attend to all tokens; the others attend
// to a chunk.
#include "coeus/models/family.hpp"
#include "coeus/models/hub_keys.hpp"

#include <algorithm>
#include <array>

namespace coeus::llama4 {

namespace {

constexpr Gate weighted_input = {.scales_input = true};

MoeConfig experts_of(int64_t experts, int64_t hidden) {
    return {.experts = experts,
            .hidden = hidden,
            .shared_hidden = hidden,
            .score = ScoreFunction::sigmoid,
            .gate = weighted_input,
            .balance_rate = 1e-3};
}

struct Row {
    const char* flavor;
    int64_t dim, layers, heads, kv_heads;
    FfnRule ffn;
    int64_t experts, expert_hidden, interleave;  // each `interleave`-th layer has experts
    int64_t chunk;                               // of the flavour with layers without RoPE
    int64_t max_seq_len;
    bool scales_rope = false;
    int64_t vocab = 202048;
};

DecoderConfig flavor(const Row& row, bool irope) {
    DecoderConfig config = {.family = "llama4",
                            .flavor = row.flavor + std::string(irope ? "_irope" : ""),
                            .dim = row.dim,
                            .layers = row.layers,
                            .vocab = row.vocab,
                            .attention = GroupedAttentionConfig{.heads = row.heads,
                                                                .kv_heads = row.kv_heads,
                                                                .head_dim = row.dim / row.heads},
                            .moe = experts_of(row.experts, row.expert_hidden),
                            .moe_layers = {.period = row.interleave, .first = row.interleave - 1},
                            .rope = {.theta = 500000},
                            .max_seq_len = row.max_seq_len};
    if (row.interleave > 1) {
        config.feed_forward.hidden = row.ffn.width(row.dim);
        config.ffn_rule = row.ffn;
    }
    if (row.scales_rope)
        config.rope.scaling = Llama3Scaling{.factor = 16, .low_frequency = 1, .high_frequency = 1};
    if (irope) {
        config.grouped().chunk = row.chunk;
        config.without_rope = {.period = 4};
    }
    return config;
}

constexpr const char *chunked = "chunked_attention", *full = "full_attention";
constexpr const char* of_text = "Llama4ForCausalLM";

// Chunks, which all layers with RoPE have, or none.
void chunk_keys(HubKeys& keys, DecoderConfig& config) {
    int64_t& chunk = config.grouped().chunk;
    Json types = Json::array();
    for (int64_t i = 0; i < config.layers; ++i)
        types.push(chunk > 0 && !config.without_rope.has(i) ? chunked : full);
    if (!keys.reads()) keys.write("layer_types", types);
    keys.integer_or_null("attention_chunk_size", chunk);
    if (!keys.reads()) return;
    const auto list = keys.json().find("layer_types");
    if (!list) return;
    const std::vector<JsonView> entries = list->elements();
    if (int64_t(entries.size()) != config.layers)
        list->reject(fmt::format("must have one entry for each of {} layers", config.layers));
    if (std::ranges::all_of(entries, [](const JsonView& type) { return type.string() == full; })) {
        chunk = 0;
        return;
    }
    for (int64_t i = 0; i < config.layers; ++i) {
        const JsonView& type = entries[size_t(i)];
        const bool has_rope = !config.without_rope.has(i);
        if (const char* expected = has_rope ? chunked : full; type.string() != expected)
            type.reject(
                fmt::format("must be \"{}\" (others are not implemented yet), because the layer has {}RoPE",
                            expected, has_rope ? "" : "no "));
    }
}

// The layers with experts: their numbers, or each "interleave_moe_layer_step"-th.
void expert_layers(HubKeys& keys, DecoderConfig& config) {
    int64_t step = config.moe_layers.period;
    keys.integer("interleave_moe_layer_step", step);
    if (!keys.reads()) {
        Json numbers = Json::array();
        for (int64_t i = 0; i < config.layers; ++i)
            if (!config.layer(i).is_dense()) numbers.push(i);
        return keys.write("moe_layers", std::move(numbers));
    }
    config.moe_layers = {step, step - 1};
    const auto list = keys.json().find("moe_layers");
    if (!list) return;
    std::vector<bool> has(size_t(config.layers), false);
    for (const JsonView& entry : list->elements()) {
        if (entry.integer() < 0 || entry.integer() >= config.layers)
            entry.reject("must be the number of a layer");
        has[size_t(entry.integer())] = true;
    }
    if (list->size() == 0)
        config.moe = {};
    else
        config.moe_layers = LayerChoice::of(has, config.moe_layers);
}

void temperature_keys(HubKeys& keys, Temperature& temperature) {
    const bool is_given = bool(temperature);
    keys.write("attn_temperature_tuning", is_given);
    keys.write("attn_scale", is_given ? temperature.scale : 0.1);
    keys.write("floor_scale", int64_t(temperature.floor));  // transformers refuses 8192.0
    if (!keys.reads()) return;
    const JsonView& json = keys.json();
    const double scale = json.number("attn_scale", 0.1), floor = json.number("floor_scale", 8192);
    if (!(floor > 0)) json["floor_scale"].reject("must be greater than 0");
    if (floor > double(most_positions))
        json["floor_scale"].reject(fmt::format("must be at most {}", most_positions));
    // older files have a number here
    const auto tuning = json.find("attn_temperature_tuning");
    if (tuning ? (tuning->is_boolean() ? tuning->boolean() : tuning->integer() != 0)
               : !is_null(json, "attn_temperature_tuning"))
        temperature = {scale, floor};
}

void hub_keys(HubKeys& keys, DecoderConfig& config) {
    MoeConfig& m = config.moe;
    // experts have the usual key of dense layers, which have another one
    int64_t dense = keys.reads() ? 16384 : config.feed_forward.hidden;
    if (m.experts > 0) config.feed_forward.hidden = m.hidden;
    if (dense == 0) dense = 2 * m.hidden;
    // transformers' defaults
    keys.usual(config, {.attention =
                            GroupedAttentionConfig{
                                .kv_heads = 8, .head_dim = 128, .qk_norm = QkNorm::after_rope, .chunk = 8192},
                        .without_rope = {4, 3},
                        .feed_forward = {.hidden = 8192},
                        .moe = experts_of(16, 0),
                        .rope = {.theta = 500000},
                        .max_seq_len = 131072});
    keys.silu();
    keys.constant("attention_bias", false, "biases are not implemented yet");
    keys.rope(config);
    m.hidden = m.shared_hidden = config.feed_forward.hidden;
    int64_t experts = std::max<int64_t>(m.experts, 1);
    keys.integer("intermediate_size_mlp", dense);
    config.feed_forward.hidden = dense;
    keys.integer("num_local_experts", experts);
    if (keys.reads()) m.experts = experts;
    keys.integer("num_experts_per_tok", m.top_k);
    expert_layers(keys, config);
    if (m.experts > 0 && config.moe_layers == LayerChoice{}) config.feed_forward = {};
    keys.layers_without_rope(config);
    chunk_keys(keys, config);
    keys.choice("use_qk_norm", config.grouped().qk_norm, QkNorm::after_rope, QkNorm::none);
    temperature_keys(keys, config.grouped().temperature);
    // transformers has the coefficient of the loss that balances experts, but not the loss
    keys.balance(config);
    keys.idle({"for_llm_compressor", "_attn_implementation_autoset"});
}

constexpr std::array names = {
    HubName{"feed_forward.w1.weight", "feed_forward.gate_proj.weight"},
    HubName{"feed_forward.w2.weight", "feed_forward.down_proj.weight"},
    HubName{"feed_forward.w3.weight", "feed_forward.up_proj.weight"},
    HubName{"moe.router.gate.weight", "feed_forward.router.weight"},
    HubName{"moe.shared_experts.w1.weight", "feed_forward.shared_expert.gate_proj.weight"},
    HubName{"moe.shared_experts.w2.weight", "feed_forward.shared_expert.down_proj.weight"},
    HubName{"moe.shared_experts.w3.weight", "feed_forward.shared_expert.up_proj.weight"}};

std::vector<HubPlace> hub_places(const std::string& parameter, const Shape& shape,
                                 const DecoderConfig& config) {
    if (const std::string name = hub_name_in(names, parameter); !name.empty())
        return {HubPlace::whole(name, shape)};
    const size_t at = parameter.find("moe.experts.");
    if (at == std::string::npos) return usual_hub_places(parameter, shape, config);
    const std::string experts = "model." + parameter.substr(0, at) + "feed_forward.experts.";
    if (parameter.ends_with(".w2")) return transposed_hub_places(experts + "down_proj", shape, shape[1], 0);
    // gate and up projections are halves of one tensor
    return transposed_hub_places(experts + "gate_up_proj", shape, 2 * shape[1],
                                 parameter.ends_with(".w3") ? shape[1] : 0);
}

}  // namespace

}  // namespace coeus::llama4

namespace coeus {

ModelFamily llama4_family() {
    using namespace llama4;
    ModelFamily family = {.name = "llama4",
                          .flavors = {},
                          .architectures = {of_text},
                          .model_types = {"llama4_text"},
                          .wrappers = {"Llama4ForConditionalGeneration"},
                          .hub_keys = hub_keys,
                          .hub_places = hub_places,
                          .hub_ignores = usually_ignored_in_hub,
                          .init = usual_init};
    const FfnRule wide = {.multiplier = 1.2, .multiple_of = 2048};
    const Row rows[] = {
        {"debugmodel", 256, 6, 16, 16, {}, 8, 512, 2, 256, 131072, false, 2048},
        {"17bx16e", 5120, 48, 40, 8, wide, 16, 8192, 1, 8192, 10485760, true},
        {"17bx128e", 5120, 48, 40, 8, wide, 128, 8192, 2, 8192, 1048576},
    };
    for (const bool irope : {false, true})
        for (const Row& row : rows) family.flavors.push_back(flavor(row, irope));
    return family;
}

}  // namespace coeus
