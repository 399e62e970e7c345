// SPDX-License-Identifier: Apache-2.0
// Llama 4 (Meta 2025, The Llama 4 herd): experts whose input is multiplied by the router's weight, and a
// shared expert. The flavours "_irope" have layers without RoPE that attend to all tokens; the others attend
// to a chunk.
#include "coeus/models/family.hpp"
#include "coeus/models/hub_config.hpp"

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

const std::array constants = {silu_alone(),
                              HubConstant{"attention_bias", false, "biases are not implemented yet"}};
constexpr const char *chunked = "chunked_attention", *full = "full_attention";
constexpr const char* of_text = "Llama4ForCausalLM";

// A list with an entry for each layer.
std::vector<JsonView> entries_of(const JsonView& list, int64_t layers) {
    std::vector<JsonView> entries = list.elements();
    if (int64_t(entries.size()) != layers)
        list.reject(fmt::format("must have one entry for each of {} layers", layers));
    return entries;
}

// The layers without RoPE: "no_rope_layers" has 1 for a layer with RoPE.
LayerChoice read_layers_without_rope(const JsonView& json, int64_t layers) {
    const int64_t interval = at_least(1, json, "no_rope_layer_interval", 4);
    const LayerChoice rule = {interval, interval - 1};
    const auto list = json.find("no_rope_layers");
    if (!list || list->size() == 0) return interval > layers ? LayerChoice{.period = 0} : rule;
    std::vector<bool> has;
    for (const JsonView& entry : entries_of(*list, layers)) {
        if (entry.integer() != 0 && entry.integer() != 1) entry.reject("must be 0 or 1");
        has.push_back(entry.integer() == 0);
    }
    return LayerChoice::of(has, rule);
}

// Chunks, which all layers with RoPE have, or none.
int64_t read_chunk(const JsonView& json, const DecoderConfig& config) {
    const int64_t chunk =
        is_null(json, "attention_chunk_size") ? 0 : at_least(1, json, "attention_chunk_size", 8192);
    const auto list = json.find("layer_types");
    if (!list) return chunk;
    const std::vector<JsonView> types = entries_of(*list, config.layers);
    if (std::ranges::all_of(types, [](const JsonView& type) { return type.string() == full; })) return 0;
    for (int64_t i = 0; i < config.layers; ++i) {
        const char* expected = config.without_rope.has(i) ? full : chunked;
        if (types[size_t(i)].string() != expected)
            types[size_t(i)].reject(
                fmt::format("must be \"{}\" (others are not implemented yet), because the layer has {}RoPE",
                            expected, config.without_rope.has(i) ? "no " : ""));
    }
    return chunk;
}

void read_experts(const JsonView& json, DecoderConfig& config) {
    config.moe = experts_of(at_least(1, json, "num_local_experts", 16), config.feed_forward.hidden);
    config.moe.top_k = at_least(1, json, "num_experts_per_tok", 1);
    config.feed_forward.hidden = at_least(1, json, "intermediate_size_mlp", 16384);
    const int64_t step = at_least(1, json, "interleave_moe_layer_step", 1);
    config.moe_layers = {step, step - 1};
    if (const auto list = json.find("moe_layers")) {
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
    if (config.moe.experts > 0 && config.moe_layers == LayerChoice{}) config.feed_forward = {};
}

DecoderConfig from_hub(const JsonView& json) {
    require_hub_constants(json, constants);
    // transformers' defaults
    DecoderConfig config = {
        .feed_forward = {.hidden = 8192}, .rope = {.theta = 500000}, .max_seq_len = 131072};
    config.attention = GroupedAttentionConfig{.kv_heads = 8, .head_dim = 128};
    read_hub_fields(json, config);
    read_hub_rope(json, config.rope, config.max_seq_len);
    read_experts(json, config);
    config.without_rope = read_layers_without_rope(json, config.layers);
    GroupedAttentionConfig& a = config.grouped();
    a.chunk = read_chunk(json, config);
    if (truth(json, "use_qk_norm", true)) a.qk_norm = QkNorm::after_rope;
    const double scale = json.number("attn_scale", 0.1), floor = json.number("floor_scale", 8192);
    if (!(floor > 0)) json["floor_scale"].reject("must be greater than 0");
    if (floor > double(most_positions))
        json["floor_scale"].reject(fmt::format("must be at most {}", most_positions));
    // older files have a number here
    const auto tuning = json.find("attn_temperature_tuning");
    if (tuning ? (tuning->is_boolean() ? tuning->boolean() : tuning->integer() != 0)
               : !is_null(json, "attn_temperature_tuning"))
        a.temperature = {scale, floor};
    // transformers has the coefficient of the loss that balances experts, but not the loss
    read_hub_balance(json, config);
    for (const char* idle : {"router_jitter_noise", "for_llm_compressor", "_attn_implementation_autoset"})
        json.find(idle);
    return config;
}

void to_hub(Json& json, const DecoderConfig& config) {
    json.set("architectures", std::vector<std::string>{of_text}).set("model_type", "llama4_text");
    write_hub_fields(json, config);
    write_hub_constants(json, constants);
    write_hub_rope(json, config.rope);
    const GroupedAttentionConfig& a = config.grouped();
    const MoeConfig& m = config.moe;
    std::vector<std::string> types;
    Json rope = Json::array(), experts = Json::array();
    for (int64_t i = 0; i < config.layers; ++i) {
        const LayerConfig layer = config.layer(i);
        types.emplace_back(layer.grouped().chunk > 0 ? chunked : full);
        rope.push(layer.grouped().rope ? 1 : 0);
        if (!layer.is_dense()) experts.push(i);
    }
    const int64_t dense = config.feed_forward.hidden;
    json.set("intermediate_size", m.experts > 0 ? m.hidden : dense)
        .set("intermediate_size_mlp", dense > 0 ? dense : 2 * m.hidden)
        .set("num_local_experts", std::max<int64_t>(m.experts, 1))
        .set("num_experts_per_tok", m.top_k)
        .set("interleave_moe_layer_step", config.moe_layers.period)
        .set("moe_layers", std::move(experts))
        .set("no_rope_layers", std::move(rope))
        .set("layer_types", types)
        .set("attention_chunk_size", a.chunk > 0 ? Json(a.chunk) : Json())
        .set("use_qk_norm", a.qk_norm == QkNorm::after_rope)
        .set("attn_temperature_tuning", bool(a.temperature))
        .set("attn_scale", a.temperature ? a.temperature.scale : 0.1)
        .set("floor_scale", int64_t(a.temperature.floor));  // transformers refuses 8192.0
    write_hub_balance(json, config);
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
                          .from_hub = from_hub,
                          .to_hub = to_hub,
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
