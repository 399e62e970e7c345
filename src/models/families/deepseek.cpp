// SPDX-License-Identifier: Apache-2.0
// DeepSeek V3 (DeepSeek-AI 2024): latent attention, dense layers followed by layers with routed and shared
// experts, YaRN. The flavours 16B and 236B have the shapes and the softmax router of DeepSeek V2.
#include "coeus/models/family.hpp"
#include "coeus/models/hub_config.hpp"

#include <array>
#include <charconv>
#include <span>

namespace coeus::deepseek {

namespace {

struct Row {
    const char* flavor;
    int64_t dim, layers, dense_layers, heads, q_rank, hidden;
    int64_t experts, top_k, expert_hidden, shared_experts;
    double mscale;
    int64_t vocab = 102400;
    int64_t groups = 1, kept_groups = 1;
    double scale = 1;
    bool sigmoid = false;
};

DecoderConfig flavor(const Row& row) {
    const MoeConfig moe = {.experts = row.experts,
                           .top_k = row.top_k,
                           .hidden = row.expert_hidden,
                           .shared_hidden = row.shared_experts * row.expert_hidden,
                           .score = row.sigmoid ? ScoreFunction::sigmoid : ScoreFunction::softmax,
                           .normalise = row.sigmoid,
                           .scale = row.scale,
                           .groups = row.groups,
                           .kept_groups = row.kept_groups,
                           .balance_rate = 1e-3,
                           .keeps_bias = row.sigmoid};
    return {.family = "deepseek_v3",
            .flavor = row.flavor,
            .dim = row.dim,
            .layers = row.layers,
            .vocab = row.vocab,
            .attention = LatentAttentionConfig{.heads = row.heads,
                                               .head_dim = 192,
                                               .value_dim = 128,
                                               .kv_rank = 512,
                                               .q_rank = row.q_rank,
                                               .rope_dim = 64,
                                               .latent_norm_eps = 1e-5},
            .feed_forward = {.hidden = row.hidden},
            .moe = moe,
            .moe_layers = {.first = row.dense_layers},
            .rope = {.theta = 10000,
                     .scaling = YarnScaling{.factor = 40,
                                            .original_positions = 4096,
                                            .mscale = row.mscale,
                                            .mscale_all_dim = row.mscale}},
            .max_seq_len = 16384};
}

const std::array constants = {silu_alone(),
                              HubConstant{"attention_bias", false, "biases are not implemented yet"},
                              HubConstant{"moe_layer_freq", 1, "others are not implemented yet"}};
// The architectures of V3 and V2 differ in the router. V3's always takes the sigmoid in transformers; other
// programs, such as torchtitan with its flavour 16B, write V3 with the softmax too.
constexpr const char *v3 = "DeepseekV3ForCausalLM", *v2 = "DeepseekV2ForCausalLM";
const std::array router_v3 = {HubConstant{"topk_method", "noaux_tc", "others are not implemented yet"}};
const std::array router_v2 = {HubConstant{"scoring_func", "softmax", "the architecture has no other"},
                              HubConstant{"topk_method", "greedy", "others are not implemented yet"},
                              HubConstant{"mlp_bias", false, "biases are not implemented yet"},
                              HubConstant{"norm_topk_prob", false, "the architecture has no other"}};

constexpr double usual_aux_loss = 0.001;

// topk_method "greedy" means one group
bool is_greedy(const JsonView& json) {
    return json.string("topk_method", "") == "greedy";
}

ScoreFunction score_of_v3(const JsonView& json) {
    const std::string score = json.string("scoring_func", "sigmoid");
    if (score != "sigmoid" && score != "softmax")
        json["scoring_func"].reject("must be \"sigmoid\" or \"softmax\" (others are not implemented yet)");
    return score == "sigmoid" ? ScoreFunction::sigmoid : ScoreFunction::softmax;
}

// The defaults are those of transformers.
MoeConfig read_experts(const JsonView& json, bool is_v2) {
    MoeConfig moe = {.experts = at_least(1, json, "n_routed_experts", is_v2 ? 64 : 256),
                     .top_k = at_least(1, json, "num_experts_per_tok", 8),
                     .hidden = at_least(1, json, "moe_intermediate_size", is_v2 ? 1407 : 2048),
                     .scale = json.number("routed_scaling_factor", is_v2 ? 1 : 2.5),
                     .balance_rate = 1e-3};
    if (is_v2) json["num_experts_per_tok"].integer();  // there is no default
    if (!is_null(json, "n_shared_experts"))
        moe.shared_hidden = at_least(0, json, "n_shared_experts", is_v2 ? 2 : 1) * moe.hidden;
    constexpr int64_t most = ConfigField{}.most;
    if (const auto shared = json.find("n_shared_experts"); shared && moe.shared_hidden > most)
        shared->reject(
            fmt::format("must be at most {} (its product with moe_intermediate_size = {} must be "
                        "at most {})",
                        most / moe.hidden, moe.hidden, most));
    if (is_v2) {
        require_hub_constants(json, router_v2);
        for (const char* idle : {"n_group", "topk_group"}) json.find(idle);  // a greedy choice has no groups
        // no place for biases: the loss that balances sequences, which DeepSeek's class has and transformers
        // does not
        moe.balance_rate = 0;
        moe.sequence_balance = json.number("aux_loss_alpha", usual_aux_loss);
        if (!(moe.sequence_balance >= 0)) json["aux_loss_alpha"].reject("must be at least 0");
        return moe;
    }
    moe.score = score_of_v3(json);
    const bool has_groups = moe.score == ScoreFunction::sigmoid || !is_greedy(json);
    if (has_groups) require_hub_constants(json, router_v3);
    moe.keeps_bias = true;
    moe.normalise = truth(json, "norm_topk_prob", true);
    const int64_t groups = at_least(1, json, "n_group", 8), kept = at_least(1, json, "topk_group", 4);
    if (has_groups) moe.groups = groups, moe.kept_groups = kept;
    return moe;
}

DecoderConfig from_hub(const JsonView& json) {
    const bool is_v2 = json["architectures"].strings().front() == v2;
    require_hub_constants(json, constants);
    DecoderConfig config = {
        .attention = LatentAttentionConfig(), .norm_eps = 1e-6, .max_seq_len = is_v2 ? 2048 : 4096};
    LatentAttentionConfig& a = config.latent();
    read_hub_fields(json, config);
    if (a.other_kv_heads)
        json["num_key_value_heads"].reject(fmt::format(
            "must be {}, as num_attention_heads (each head has its own keys and values)", a.heads));
    read_hub_rope(json, config.rope, config.max_seq_len);
    config.rope.layout =
        truth(json, "rope_interleave", true) ? RopeLayout::interleaved : RopeLayout::half_split;
    a.kv_rank = at_least(1, json, "kv_lora_rank", 512);
    a.q_rank = is_null(json, "q_lora_rank") ? 0 : at_least(1, json, "q_lora_rank", 1536);
    a.rope_dim = at_least(1, json, "qk_rope_head_dim", 64);
    // "head_dim" is another width there
    a.head_dim = at_least(1, json, "qk_nope_head_dim", 128) + a.rope_dim;
    if (const auto sum = json.find("qk_head_dim"); sum && sum->integer() != a.head_dim)
        sum->reject(fmt::format("must be {} (qk_nope_head_dim + qk_rope_head_dim)", a.head_dim));
    a.value_dim = at_least(1, json, "v_head_dim", 128);
    config.moe = read_experts(json, is_v2);
    config.moe_layers = {.first = at_least(0, json, "first_k_dense_replace", is_v2 ? 0 : 3)};
    config.mtp.layers = at_least(0, json, "num_nextn_predict_layers", 0);
    for (const char* idle :
         {"output_router_logits", "router_aux_loss_coef", "aux_loss_alpha", "seq_aux", "ep_size"})
        json.find(idle);
    return config;
}

void to_hub(Json& json, const DecoderConfig& config) {
    const LatentAttentionConfig& a = config.latent();
    const MoeConfig& m = config.moe;
    const bool is_v2 = m.score == ScoreFunction::softmax && !m.keeps_bias;
    json.set("architectures", std::vector<std::string>{is_v2 ? v2 : v3})
        .set("model_type", is_v2 ? "deepseek_v2" : "deepseek_v3");
    write_hub_fields(json, config);
    write_hub_constants(json, constants);
    if (is_v2)
        write_hub_constants(json, router_v2);
    else
        write_hub_constants(json, router_v3);
    write_hub_rope(json, config.rope);
    if (is_v2 && (m.sequence_balance > 0 || !m.has_balance_bias()))
        json.set("aux_loss_alpha", without_last_digits(m.sequence_balance));
    if (!is_v2)
        json.set("scoring_func", m.score == ScoreFunction::sigmoid ? "sigmoid" : "softmax")
            .set("rope_interleave", config.rope.layout == RopeLayout::interleaved)
            .set("norm_topk_prob", m.normalise)
            .set("num_nextn_predict_layers", config.mtp.layers);
    json.set("kv_lora_rank", a.kv_rank)
        .set("q_lora_rank", a.q_rank > 0 ? Json(a.q_rank) : Json())
        .set("qk_rope_head_dim", a.rope_dim)
        .set("qk_nope_head_dim", a.head_dim - a.rope_dim)
        .set("qk_head_dim", a.head_dim)
        .set("head_dim", a.rope_dim)
        .set("v_head_dim", a.value_head_dim())
        .set("n_routed_experts", m.experts)
        .set("num_experts_per_tok", m.top_k)
        .set("moe_intermediate_size", m.hidden)
        .set("n_shared_experts", m.hidden > 0 ? m.shared_hidden / m.hidden : 0)
        .set("routed_scaling_factor", m.scale)
        .set("n_group", m.groups)
        .set("topk_group", m.kept_groups)
        .set("first_k_dense_replace", config.moe_layers.first);
}

constexpr std::array names = {HubName{"moe.expert_bias", "mlp.gate.e_score_correction_bias"}};

// Layers of multi-token prediction are after the last layer there.
std::string layer_name(const std::string& parameter, const DecoderConfig& config) {
    const std::string mtp_layers = "mtp_layers.";
    if (!parameter.starts_with(mtp_layers)) return parameter;
    const size_t dot = parameter.find('.', mtp_layers.size());
    const int64_t depth = std::stoll(parameter.substr(mtp_layers.size(), dot - mtp_layers.size()));
    return fmt::format("layers.{}{}", config.layers + depth, parameter.substr(dot));
}

std::vector<HubPlace> hub_places(const std::string& name, const Shape& shape, const DecoderConfig& config) {
    const std::string parameter = layer_name(name, config);
    if (config.moe.score == ScoreFunction::softmax && !config.moe.keeps_bias &&
        parameter.ends_with(".moe.expert_bias"))
        return {};
    for (const std::span<const HubName> known :
         {std::span<const HubName>(names), latent_attention_hub_names(), mtp_hub_names()})
        if (const std::string found = hub_name_in(known, parameter); !found.empty()) {
            HubPlace place = HubPlace::whole(found, shape);
            place.keeps_f32 = parameter.ends_with(".moe.expert_bias");  // the choice of experts depends on it
            return {place};
        }
    return usual_hub_places(parameter, shape, config);
}

// The number of a tensor's layer; -1: none.
int64_t layer_of(const std::string& tensor) {
    const std::string layers = "model.layers.";
    int64_t layer = -1;
    if (tensor.starts_with(layers))
        std::from_chars(tensor.data() + layers.size(), tensor.data() + tensor.size(), layer);
    return layer;
}

// Layers of multi-token prediction have copies of the table and the output projection.
std::optional<HubCopy> hub_copy_of(const std::string& tensor, const DecoderConfig& config) {
    const int64_t layer = layer_of(tensor);
    const char* otherwise = "to leave out the layer, set model.num_mtp_layers = 0";
    if (layer >= config.layers && layer < config.all_layers()) {
        if (tensor.ends_with(".embed_tokens.weight")) return HubCopy{"model.embed_tokens.weight", otherwise};
        if (tensor.ends_with(".shared_head.head.weight"))
            return HubCopy{config.tied ? "model.embed_tokens.weight" : "lm_head.weight", otherwise};
    }
    return usually_copied_in_hub(tensor, config);
}

// Layers of multi-token prediction that the model does not have, and copies.
bool hub_ignores(const std::string& tensor, const DecoderConfig& config) {
    return layer_of(tensor) >= config.all_layers() || hub_copy_of(tensor, config) ||
           usually_ignored_in_hub(tensor, config);
}

}  // namespace

}  // namespace coeus::deepseek

namespace coeus {

ModelFamily deepseek_v3_family() {
    using namespace deepseek;
    ModelFamily family = {.name = "deepseek_v3",
                          .flavors = {},
                          .architectures = {v3, v2},
                          .model_types = {"deepseek_v3", "deepseek_v2"},
                          .from_hub = from_hub,
                          .to_hub = to_hub,
                          .hub_places = hub_places,
                          .hub_ignores = hub_ignores,
                          .hub_copy_of = hub_copy_of,
                          .init = usual_init};
    const Row rows[] = {
        {"debugmodel", 256, 6, 1, 16, 0, 1024, 8, 3, 256, 2, 0.7, 2048},
        {"16B", 2048, 27, 1, 16, 0, 10944, 64, 6, 1408, 2, 0.7},
        {"236B", 5120, 60, 1, 128, 1536, 12288, 160, 6, 1536, 2, 1, 102400, 8, 3, 16},
        {"671B", 7168, 61, 3, 128, 1536, 18432, 256, 8, 2048, 1, 1, 129280, 8, 4, 2.5, true},
    };
    for (const Row& row : rows) family.flavors.push_back(flavor(row));
    return family;
}

}  // namespace coeus
