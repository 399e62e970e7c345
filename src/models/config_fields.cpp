// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/config_fields.hpp"

#include "coeus/file/json.hpp"

#include <algorithm>
#include <array>
#include <type_traits>
#include <variant>

namespace coeus {

namespace {

// Names of the values of an enumeration. The first name of a value is the one that is written.
template <class Enum>
struct EnumName {
    const char* name;
    Enum value;
};
constexpr std::array norm_types = {EnumName<NormType>{"rmsnorm", NormType::rms_norm},
                                   EnumName<NormType>{"fused_rmsnorm", NormType::rms_norm},
                                   EnumName<NormType>{"layernorm", NormType::layer_norm},
                                   EnumName<NormType>{"np_layernorm", NormType::np_layer_norm}};
constexpr std::array rope_layouts = {EnumName<RopeLayout>{"interleaved", RopeLayout::interleaved},
                                     EnumName<RopeLayout>{"half_split", RopeLayout::half_split}};
constexpr std::array qk_norms = {EnumName<QkNorm>{"none", QkNorm::none},
                                 EnumName<QkNorm>{"before_rope", QkNorm::before_rope},
                                 EnumName<QkNorm>{"after_rope", QkNorm::after_rope}};
constexpr std::array attention_biases = {EnumName<AttentionBias>{"none", AttentionBias::none},
                                         EnumName<AttentionBias>{"qkv", AttentionBias::qkv},
                                         EnumName<AttentionBias>{"all", AttentionBias::all}};
constexpr std::array initial_values = {EnumName<InitialValues>{"2026", InitialValues::of_2026},
                                       EnumName<InitialValues>{"2025", InitialValues::of_2025}};
constexpr std::array score_functions = {EnumName<ScoreFunction>{"softmax", ScoreFunction::softmax},
                                        EnumName<ScoreFunction>{"sigmoid", ScoreFunction::sigmoid}};
constexpr const auto& names_of(ScoreFunction) {
    return score_functions;
}
constexpr const auto& names_of(QkNorm) {
    return qk_norms;
}
constexpr const auto& names_of(AttentionBias) {
    return attention_biases;
}
constexpr const auto& names_of(InitialValues) {
    return initial_values;
}
constexpr const auto& names_of(NormType) {
    return norm_types;
}
constexpr const auto& names_of(RopeLayout) {
    return rope_layouts;
}

template <class T>
concept Enumeration = std::is_enum_v<T>;

template <Enumeration Enum>
const char* name_of_value(Enum value) {
    for (const EnumName<Enum>& known : names_of(value))
        if (known.value == value) return known.name;
    return "";
}
template <Enumeration Enum>
std::optional<Enum> value_of_name(const std::string& name) {
    for (const EnumName<Enum>& known : names_of(Enum()))
        if (name == known.name) return known.value;
    return std::nullopt;
}

template <class T>
Json to_json(const T& value) {
    return value;
}
template <Enumeration Enum>
Json to_json(const Enum& value) {
    return name_of_value(value);
}
// The names of the kinds of scaling; Llama 3.1's has none, because it was the only one at first.
const char* type_of(const Llama3Scaling&) {
    return "";
}
const char* type_of(const YarnScaling&) {
    return "yarn";
}
Json scaling_to_json(const std::monostate&) {
    return {};
}
template <class Scaling>
Json scaling_to_json(const Scaling& scaling) {
    Json json = Json::object();
    if (const std::string type = type_of(scaling); !type.empty()) json.set("type", type);
    for_each_field(scaling, [&](const ConfigField& field, auto value) { json.set(field.name, value); });
    return json;
}
Json to_json(const RopeScaling& scaling) {
    return std::visit([](const auto& kind) { return scaling_to_json(kind); }, scaling);
}

void read(const JsonView& json, std::string& value) {
    value = json.string();
}
void read(const JsonView& json, int64_t& value) {
    value = json.integer();
}
void read(const JsonView& json, double& value) {
    value = json.number();
}
void read(const JsonView& json, bool& value) {
    value = json.boolean();
}
template <Enumeration Enum>
void read(const JsonView& json, Enum& value) {
    const std::optional<Enum> known = value_of_name<Enum>(json.string());
    if (!known) json.reject("is unknown to this version");
    value = *known;
}
template <class Scaling>
void read_scaling(const JsonView& json, RopeScaling& scaling) {
    Scaling kind;
    for_each_field(kind, [&](const ConfigField& field, auto& value) { read(json[field.name], value); });
    scaling = kind;
}
void read(const JsonView& json, RopeScaling& scaling) {
    const std::string type = json.string("type", type_of(Llama3Scaling{}));
    if (type == type_of(Llama3Scaling{})) return read_scaling<Llama3Scaling>(json, scaling);
    if (type == type_of(YarnScaling{})) return read_scaling<YarnScaling>(json, scaling);
    json["type"].reject("is unknown to this version");
}

}  // namespace

std::string describe_model(const DecoderConfig& model) {
    Json json = Json::object();
    DecoderConfig defaults;
    defaults.moe.gate.interleaved = model.moe.biases;
    std::vector<std::string> of_defaults;
    for_each_field(defaults, [&](const ConfigField&, const auto& value) {
        of_defaults.push_back(to_json(value).text());
    });
    size_t number = 0;
    for_each_field(model, [&](const ConfigField& field, const auto& value) {
        Json written = to_json(value);
        const bool has_default = written.text() == of_defaults[number++];
        if (!written.is_null() && !(field.is_later && has_default)) json.set(field.name, std::move(written));
    });
    return json.text();
}

DecoderConfig model_from_description(const std::string& description, const std::string& source) {
    const JsonDocument document = JsonDocument::parse(description, source + " (model)");
    const JsonView json = document.root();
    DecoderConfig model;
    for_each_field(model, [&](const ConfigField& field, auto& value) {
        if (field.is_required)
            read(json[field.name], value);
        else if (const auto found = json.find(field.name))
            read(*found, value);
    });
    if (!json.contains("moe.gate_interleaved")) model.moe.gate.interleaved = model.moe.biases;
    model.validate();
    return model;
}

// A value in the form in which messages show it.
template <class T>
std::string shown(const T& value) {
    const Json json = to_json(value);
    return json.is_null() ? "none" : json.text();
}

std::vector<FieldDifference> differences(const DecoderConfig& ours, const DecoderConfig& theirs) {
    std::vector<std::string> values;
    for_each_field(theirs, [&](const ConfigField&, const auto& value) { values.push_back(shown(value)); });
    std::vector<FieldDifference> all;
    size_t number = 0;
    for_each_field(ours, [&](const ConfigField& field, const auto& value) {
        const std::string text = shown(value), &other = values[number++];
        if (text != other) all.push_back({field, text, other});
    });
    return all;
}

namespace {

template <class T>
void override_field(const ConfigField& field, T& value, const GivenFields& given) {
    if (const auto found = given(field.name)) value = std::get<T>(*found);
}
template <Enumeration Enum>
void override_field(const ConfigField& field, Enum& value, const GivenFields& given) {
    const auto found = given(field.name);
    if (!found) return;
    const std::optional<Enum> known = value_of_name<Enum>(std::get<std::string>(*found));
    require(known.has_value(), "the options' choices are the names of this enumeration");
    value = *known;
}
// rope_scaling_factor and so on, of the kind that the flavour has, or else Llama 3.1's. A factor of 1 removes
// the scaling.
void override_scaling(const ConfigField&, const std::monostate&, RopeScaling&, const GivenFields&) {}
template <class Scaling>
void override_scaling(const ConfigField& field, Scaling kind, RopeScaling& value, const GivenFields& given) {
    bool is_given = false;
    for_each_field(kind, [&](const ConfigField& part, auto& number) {
        const auto found = given(fmt::format("{}_{}", field.name, part.name));
        if (found) number = std::get<std::remove_reference_t<decltype(number)>>(*found);
        is_given |= found.has_value();
    });
    if (!is_given) return;
    value = {};
    if (kind.factor != 1) value = kind;
}
void override_field(const ConfigField& field, RopeScaling& value, const GivenFields& given) {
    const RopeScaling kind = std::holds_alternative<std::monostate>(value) ? Llama3Scaling{} : value;
    std::visit([&](const auto& known) { override_scaling(field, known, value, given); }, kind);
}

// If the width of the model changes, the feed-forward width follows by the flavour's own rule.
void follow_ffn_width(DecoderConfig& model, const GivenFields& given) {
    const auto multiplier = given("ffn_dim_multiplier"), multiple_of = given("multiple_of"),
               dim = given("dim");
    if (given("ffn_hidden")) {
        model.ffn_rule.reset();
        return;
    }
    if (!dim && !multiplier && !multiple_of) return;
    if (model.feed_forward.hidden == 0 && !multiplier) return;  // all layers have experts
    if (!model.ffn_rule && !multiplier)
        throw ConfigError(
            "model.{} = {}: the feed-forward width of this flavour is a number, {}, which does not follow "
            "from "
            "another; set model.ffn_hidden too",
            dim ? "dim" : "multiple_of", std::get<int64_t>(dim ? *dim : *multiple_of),
            model.feed_forward.hidden);
    FfnRule rule = model.ffn_rule.value_or(FfnRule{});
    if (multiplier) rule.multiplier = std::get<double>(*multiplier);
    if (multiple_of) rule.multiple_of = std::get<int64_t>(*multiple_of);
    if (rule.multiplier > 1000)
        throw ConfigError("model.ffn_dim_multiplier = {}: must be at most 1000 (usual: 1 to 1.5)",
                          rule.multiplier);
    model.ffn_rule = rule;
    model.feed_forward.hidden = rule.width(model.dim);
}

}  // namespace

void override_fields(DecoderConfig& model, const GivenFields& given) {
    AttentionConfig& a = model.attention;
    const bool is_usual_head = a.head_dim * a.heads == model.dim;
    MoeConfig& m = model.moe;
    int64_t shared = m.hidden > 0 ? m.shared_hidden / m.hidden : 0;  // the number of shared experts
    for_each_field(model, [&](const ConfigField& field, auto& value) {
        if (field.kind != FieldKind::identity) override_field(field, value, given);
    });
    // if only n_heads is given, there are at most as many key/value heads
    if (given("n_heads") && !given("n_kv_heads") && (a.kv_heads > a.heads || a.is_latent()))
        a.kv_heads = a.heads;
    if ((given("dim") || given("n_heads")) && !given("head_dim") && is_usual_head)
        a.head_dim = a.heads > 0 && model.dim % a.heads == 0 ? model.dim / a.heads : 0;
    follow_ffn_width(model, given);
    if (const auto number = given("moe.num_shared_experts")) shared = std::get<int64_t>(*number);
    if (given("moe.num_shared_experts") || given("moe.hidden")) m.shared_hidden = shared * m.hidden;
}

}  // namespace coeus
