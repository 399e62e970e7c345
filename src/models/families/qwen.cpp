// SPDX-License-Identifier: Apache-2.0
// Qwen 2 and 2.5 (Yang et al. 2024, Qwen2 and Qwen2.5 technical reports): Llama with biases of queries, keys
// and values; two flavours have experts, and a shared one with a gate. Qwen 3 (Yang et al. 2025): a norm of
// each head of queries and keys in their place; the flavours with a second number of parameters (the active
// ones) have experts.
#include "coeus/models/family.hpp"
#include "coeus/models/hub_keys.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

namespace coeus::qwen {

namespace {

struct Row {
    const char* flavor;
    int64_t dim, layers, heads, kv_heads, hidden;
    int64_t vocab = 151936;
    bool tied = false;
    double norm_eps = 1e-6;
    int64_t max_seq_len = 0;  // 0: that of the family
};

DecoderConfig flavor(const char* family, const Row& row, int64_t head_dim, int64_t max_seq_len) {
    return {.family = family,
            .flavor = row.flavor,
            .dim = row.dim,
            .layers = row.layers,
            .vocab = row.vocab,
            .attention = GroupedAttentionConfig{.heads = row.heads,
                                                .kv_heads = row.kv_heads,
                                                .head_dim = head_dim > 0 ? head_dim : row.dim / row.heads},
            .feed_forward = {.hidden = row.hidden},
            .rope = {.theta = 1e6, .layout = RopeLayout::half_split},
            .norm_eps = row.norm_eps,
            .tied = row.tied,
            .max_seq_len = row.max_seq_len > 0 ? row.max_seq_len : max_seq_len};
}

// `absent`: the attention of a folder without its keys.
void usual_keys(HubKeys& keys, DecoderConfig& config, GroupedAttentionConfig absent,
                bool has_experts = false) {
    absent.kv_heads = has_experts ? 4 : 32;
    absent.window = 4096;
    keys.usual(config, {.attention = absent,
                        .windowed = {.first = 28},
                        .rope = {.layout = RopeLayout::half_split},
                        .norm_eps = 1e-6,
                        .max_seq_len = 32768});  // transformers' defaults
    keys.silu();
    keys.rope(config);
    keys.window(config, {.used_if = "use_sliding_window", .in_all_layers = has_experts});
}

// A choice without the layers whose numbers are in a list.
LayerChoice without_layers(const LayerChoice& choice, int64_t layers, const JsonView& list) {
    std::vector<bool> has;
    for (int64_t i = 0; i < layers; ++i) has.push_back(choice.has(i));
    for (const JsonView& entry : list.elements())
        if (entry.integer() >= 0 && entry.integer() < layers) has[size_t(entry.integer())] = false;
    if (std::ranges::find(has, true) == has.end()) list.reject("must leave a layer with experts");
    return LayerChoice::of(has, choice);
}

// Experts are in each "decoder_sparse_step"-th layer, but not in those of a list.
void expert_layers(HubKeys& keys, DecoderConfig& config) {
    LayerChoice& experts = config.moe_layers;
    const bool is_step = experts == LayerChoice{.period = experts.period, .first = experts.period - 1};
    int64_t step = is_step ? experts.period : 1;
    keys.integer("decoder_sparse_step", step);
    const char* dense_layers = "mlp_only_layers";
    if (keys.reads()) {
        experts = {.period = step, .first = step - 1};
        if (const auto dense = keys.json().find(dense_layers); dense && dense->size() > 0)
            experts = without_layers(experts, config.layers, *dense);
        if (experts == LayerChoice{}) config.feed_forward = {};
    } else {
        Json dense = Json::array();
        for (int64_t i = 0; i < config.layers; ++i)
            if (!is_step && !experts.has(i)) dense.push(i);
        keys.write(dense_layers, std::move(dense));
    }
}

// Experts with the keys of Qwen; `absent`: those of a folder without them.
void expert_keys(HubKeys& keys, DecoderConfig& config, const MoeConfig& absent) {
    MoeConfig& m = config.moe;
    if (keys.reads()) m = absent;
    keys.integer({"num_experts", "num_local_experts"}, m.experts);
    keys.integer("num_experts_per_tok", m.top_k);
    keys.integer("moe_intermediate_size", m.hidden);
    keys.truth("norm_topk_prob", m.normalise);
    expert_layers(keys, config);
}

// Windows of Qwen 2 with experts: without a list they are in every other one of the first layers.
void every_other_window(HubKeys& keys, DecoderConfig& config) {
    int64_t end = 28;
    if (keys.reads()) {
        if (const auto given = keys.json().find("max_window_layers"))
            end = integer_within(0, 1 << 16, *given);
        std::vector<bool> has;
        for (int64_t i = 0; i < config.layers; ++i) has.push_back(i < end && i % 2 == 0);
        config.windowed = LayerChoice::of(has, {.period = 2});
    }
    keys.window(config, {.used_if = "use_sliding_window", .has_first = false});
}

constexpr const char *dense_qwen2 = "Qwen2ForCausalLM", *moe_qwen2 = "Qwen2MoeForCausalLM";

void qwen2_keys(HubKeys& keys, DecoderConfig& config) {
    const bool has_experts = keys.architecture(moe_qwen2, config.moe.experts > 0);
    GroupedAttentionConfig absent = {.bias = AttentionBias::qkv};
    if (!has_experts) return usual_keys(keys, config, absent);
    if (config.feed_forward.hidden == 0) config.feed_forward.hidden = config.moe.shared_hidden;
    absent.kv_heads = 16;
    absent.window = 4096;
    keys.usual(config, {.attention = absent,
                        .rope = {.layout = RopeLayout::half_split},
                        .norm_eps = 1e-6,
                        .max_seq_len = 32768});  // transformers' defaults
    keys.silu();
    keys.rope(config);
    every_other_window(keys, config);
    expert_keys(keys, config,
                {.experts = 60, .top_k = 4, .hidden = 1408, .shared_hidden = 5632, .shared_gate = true});
    keys.integer("shared_expert_intermediate_size", config.moe.shared_hidden);
    keys.balance(config);
    keys.choice("qkv_bias", config.grouped().bias, AttentionBias::qkv, AttentionBias::none);
}

constexpr std::array names_of_shared_expert = {
    HubName{"moe.shared_experts.w1.weight", "mlp.shared_expert.gate_proj.weight"},
    HubName{"moe.shared_experts.w2.weight", "mlp.shared_expert.down_proj.weight"},
    HubName{"moe.shared_experts.w3.weight", "mlp.shared_expert.up_proj.weight"}};

std::vector<HubPlace> qwen2_places(const std::string& parameter, const Shape& shape,
                                   const DecoderConfig& config) {
    return hub_places_by(names_of_shared_expert, parameter, shape, config);
}

// Both architectures of Qwen 3.
constexpr const char *dense_qwen3 = "Qwen3ForCausalLM", *moe_qwen3 = "Qwen3MoeForCausalLM";

void qwen3_keys(HubKeys& keys, DecoderConfig& config) {
    const bool has_experts = keys.architecture(moe_qwen3, config.moe.experts > 0);
    MoeConfig& m = config.moe;
    // the width of dense layers, of which there may be none
    if (config.feed_forward.hidden == 0) config.feed_forward.hidden = 3 * m.hidden;
    usual_keys(keys, config, {.head_dim = has_experts ? 0 : 128, .qk_norm = QkNorm::before_rope},
               has_experts);
    if (has_experts) {
        expert_keys(keys, config, {.experts = 128, .top_k = 8, .hidden = 768});
        keys.balance(config);
    }
    keys.choice("attention_bias", config.grouped().bias, AttentionBias::all, AttentionBias::none);
}

// torchtitan's rule of 2026: one distribution for all matrices, but a narrower one for those that write to
// the residual stream of a model with experts.
Init init_qwen3(WeightRole role, int64_t layer, const DecoderConfig& config) {
    if (config.initial_values == InitialValues::of_2025) return usual_init(role, layer, config);
    const bool writes = role == WeightRole::attention_out || role == WeightRole::down;
    switch (role) {
        case WeightRole::norm: return Init::ones();
        case WeightRole::attention_bias:
        case WeightRole::balance: return {};
        default:
            return Init::normal(writes && config.has_experts() ? 0.02 / std::sqrt(2.0 * double(config.layers))
                                                               : 0.02);
    }
}

ModelFamily family(const char* name, const char* architecture, const char* type) {
    return {.name = name,
            .flavors = {},
            .architectures = {architecture},
            .model_types = {type},
            .hub_places = usual_hub_places,
            .hub_ignores = usually_ignored_in_hub,
            .init = usual_init};
}

}  // namespace

}  // namespace coeus::qwen

namespace coeus {

ModelFamily qwen2_family() {
    using namespace qwen;
    ModelFamily made = family("qwen2", dense_qwen2, "qwen2");
    made.architectures.push_back(moe_qwen2);
    made.model_types.push_back("qwen2_moe");
    made.hub_keys = qwen2_keys;
    made.hub_places = qwen2_places;
    const Row rows[] = {
        {"debugmodel", 256, 6, 16, 8, 768, 2048, true},
        {"0.5B", 896, 24, 14, 2, 4864, 151936, true},
        {"1.5B", 1536, 28, 12, 2, 8960, 151936, true},
        {"3B", 2048, 36, 16, 2, 11008, 151936, true},
        {"7B", 3584, 28, 28, 4, 18944, 152064},
        {"14B", 5120, 48, 40, 8, 13824, 152064, false, 1e-5},
        {"32B", 5120, 64, 40, 8, 27648, 152064, false, 1e-5},
        {"72B", 8192, 80, 64, 8, 29568, 152064, false, 1e-5},
    };
    for (const Row& row : rows) {
        made.flavors.push_back(flavor("qwen2", row, 0, 131072));
        made.flavors.back().grouped().bias = AttentionBias::qkv;
    }
    struct MoeRow {
        Row row;
        int64_t experts, top_k, hidden, shared_hidden;
    };
    const MoeRow moe_rows[] = {
        {{"debugmodel_moe", 256, 6, 16, 8, 0, 2048, false, 1e-6, 4096}, 16, 4, 128, 512},
        {{"1.5-A2.7B", 2048, 24, 16, 16, 0, 151936, false, 1e-6, 8192}, 60, 4, 1408, 5632},
        {{"57B-A14B", 3584, 28, 28, 4, 0}, 64, 8, 2560, 20480},
    };
    for (const MoeRow& row : moe_rows) {
        DecoderConfig config = flavor("qwen2", row.row, 0, 131072);
        config.grouped().bias = AttentionBias::qkv;
        config.moe = {.experts = row.experts,
                      .top_k = row.top_k,
                      .hidden = row.hidden,
                      .shared_hidden = row.shared_hidden,
                      .shared_gate = true};
        set_router_aux_loss_coef(config, usual_router_aux_loss_coef);
        made.flavors.push_back(config);
    }
    return made;
}

ModelFamily qwen3_family() {
    using namespace qwen;
    ModelFamily made = family("qwen3", dense_qwen3, "qwen3");
    made.architectures.push_back(moe_qwen3);
    made.model_types.push_back("qwen3_moe");
    made.hub_keys = qwen3_keys;
    made.init = init_qwen3;
    const Row rows[] = {
        {"debugmodel", 256, 8, 16, 8, 3072, 2048, true, 1e-6, 4096},
        {"0.6B", 1024, 28, 16, 8, 3072, 151936, true},
        {"1.7B", 2048, 28, 16, 8, 6144, 151936, true},
        {"4B", 2560, 36, 32, 8, 9728, 151936, true},
        {"8B", 4096, 36, 32, 8, 12288},
        {"14B", 5120, 40, 40, 8, 17408},
        {"32B", 5120, 64, 64, 8, 25600},
    };
    for (const Row& row : rows) {
        made.flavors.push_back(flavor("qwen3", row, 128, 40960));
        made.flavors.back().grouped().qk_norm = QkNorm::before_rope;
    }
    struct MoeRow {
        Row row;
        int64_t experts, hidden;
        double theta;
    };
    const MoeRow moe_rows[] = {
        {{"debugmodel_moe", 256, 8, 16, 8, 0, 2048, false, 1e-6, 4096}, 64, 768, 1e6},
        {{"30B-A3B", 2048, 48, 32, 4, 0}, 128, 768, 1e6},
        {{"235B-A22B", 4096, 94, 64, 4, 0}, 128, 1536, 5e6},
    };
    for (const MoeRow& row : moe_rows) {
        DecoderConfig config = flavor("qwen3", row.row, 128, 40960);
        config.grouped().qk_norm = QkNorm::before_rope;
        config.rope.theta = row.theta;
        config.moe = {.experts = row.experts,
                      .top_k = 8,
                      .hidden = row.hidden,
                      .normalise = true,
                      .balance_rate = 1e-3};
        made.flavors.push_back(config);
    }
    return made;
}

}  // namespace coeus
