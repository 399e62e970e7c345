// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/config_fields.hpp"

#include "coeus/file/json.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace coeus {

namespace {

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
Json to_json(const RopeScaling& scaling) {
    return describe_scaling(scaling);
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
void read(const JsonView& json, RopeScaling& scaling) {
    scaling = scaling_from_description(json);
}

// A field of a model with its value.
struct Described {
    ConfigField field;
    Json value;
};

std::vector<Described> described(const DecoderConfig& model) {
    std::vector<Described> all;
    for_each_field(model, [&](const ConfigField& field, const auto& value) {
        all.push_back({field, to_json(value)});
    });
    return all;
}

const Described* find_field(const std::vector<Described>& all, std::string_view name) {
    const auto found =
        std::ranges::find_if(all, [&](const Described& one) { return one.field.name == name; });
    return found == all.end() ? nullptr : &*found;
}

// The value that a description of this model need not have.
bool is_default(const DecoderConfig& model, const Described& one) {
    DecoderConfig defaults;
    std::visit([&](auto kind) { defaults.attention = decltype(kind)(); }, model.attention);
    defaults.moe.gate.interleaved = model.moe.biases;
    return find_field(described(defaults), one.field.name)->value.text() == one.value.text();
}

// The fields that only models with another kind of attention have, with the values that mean that there is
// no such thing.
std::vector<Described> fields_of_other_kinds(const DecoderConfig& model) {
    const std::vector<Described> own = described(model);
    std::vector<Described> others;
    for (const AttentionConfig& kind :
         {AttentionConfig(GroupedAttentionConfig()), AttentionConfig(LatentAttentionConfig())})
        for (const Described& one : described({.attention = kind}))
            if (!find_field(own, one.field.name)) others.push_back(one);
    return others;
}

const char* title(const GroupedAttentionConfig&) {
    return "attention without latents";
}
const char* title(const LatentAttentionConfig&) {
    return "latent attention";
}
std::string about_other_kind(const DecoderConfig& model) {
    return std::visit(
        [&](const auto& kind) {
            return fmt::format("{} {} has {}, and no such field", model.family, model.flavor, title(kind));
        },
        model.attention);
}

}  // namespace

std::string describe_model(const DecoderConfig& model) {
    Json json = Json::object();
    const std::vector<Described> all = described(model);
    // the fields of the first version have always been the first ones
    for (const bool later : {false, true})
        for (const Described& one : all)
            if (one.field.is_later == later && !one.value.is_null() && !(later && is_default(model, one)))
                json.set(one.field.name, one.value);
    return json.text();
}

DecoderConfig model_from_description(const std::string& description, const std::string& source) {
    const JsonDocument document = JsonDocument::parse(description, source + " (model)");
    const JsonView json = document.root();
    DecoderConfig model;
    if (json.contains("kv_lora_rank")) model.attention = LatentAttentionConfig();
    for_each_field(model, [&](const ConfigField& field, auto& value) {
        if (field.is_required)
            read(json[field.name], value);
        else if (const auto found = json.find(field.name))
            read(*found, value);
    });
    if (!json.contains("moe.gate_interleaved")) model.moe.gate.interleaved = model.moe.biases;
    for (const Described& other : fields_of_other_kinds(model))
        if (const auto found = json.find(other.field.name))
            found->reject("must be absent: " + about_other_kind(model));
    model.validate();
    return model;
}

namespace {

bool is_listed(const LayerChoice& choice) {
    return choice.word.find('1') != std::string::npos;
}

// A model whose choices of layers have the form of those of `like`, if one is a rule and the other a list,
// and both take the same layers.
DecoderConfig with_choices_like(DecoderConfig model, const DecoderConfig& like) {
    const int64_t layers = std::max(model.layers, like.layers);
    for (const auto choice :
         {&DecoderConfig::windowed, &DecoderConfig::without_rope, &DecoderConfig::moe_layers})
        if (is_listed(model.*choice) != is_listed(like.*choice) &&
            (model.*choice).has_same(like.*choice, layers))
            model.*choice = like.*choice;
    return model;
}

}  // namespace

std::vector<FieldDifference> differences(const DecoderConfig& ours, const DecoderConfig& theirs) {
    const std::vector<Described> own = described(ours), other = described(with_choices_like(theirs, ours));
    // in the form in which messages show a value
    const auto shown = [](const Described* one) {
        return one && !one->value.is_null() ? one->value.text() : "none";
    };
    std::vector<FieldDifference> all;
    for (const Described& one : own) {
        const Described* same = find_field(other, one.field.name);
        if (!same && is_default(ours, one)) continue;  // of another kind of attention
        if (shown(&one) != shown(same)) all.push_back({one.field, shown(&one), shown(same)});
    }
    for (const Described& one : other)
        if (!find_field(own, one.field.name) && !is_default(theirs, one))
            all.push_back({one.field, "none", shown(&one)});
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
double number_of(const FieldValue& value) {
    const auto* whole = std::get_if<int64_t>(&value);
    return whole ? double(*whole) : std::get<double>(value);
}

// The fields of a scaling that a deck may set. All are numbers.
constexpr std::array scaling_options = {"factor", "original_positions"};

// Sets those of `kind`, and refuses others.
template <class Scaling>
RopeScaling scaling_with_options(const ConfigField& field, Scaling kind, const GivenFields& given) {
    for (const std::string option : scaling_options) {
        const std::string name = fmt::format("{}_{}", field.name, option);
        const auto found = given(name);
        if (!found) continue;
        bool is_known = false;
        if constexpr (!std::is_same_v<Scaling, std::monostate>)
            for_each_field(kind, [&](const ConfigField& part, auto& value) {
                if constexpr (std::is_same_v<decltype(value), double&>)
                    if (option == part.name) {
                        value = number_of(*found);
                        is_known = true;
                    }
            });
        if (!is_known)
            throw ConfigError(
                "model.{} = {}: a RoPE with model.{}_type = \"{}\" has no such field; remove it", name,
                number_of(*found), field.name, type_name(kind));
    }
    return kind;
}

// A deck that takes another kind of scaling than the flavour's says what it depends on.
template <class Scaling>
void require_all_options(const ConfigField& field, const Scaling& kind, const GivenFields& given) {
    for_each_field(kind, [&](const ConfigField& part, const auto&) {
        for (const std::string option : scaling_options)
            if (option == part.name && !given(fmt::format("{}_{}", field.name, option)))
                throw ConfigError("model.{0}_type = \"{1}\": set model.{0}_{2} too, {3}", field.name,
                                  type_name(kind), option,
                                  option == "factor"
                                      ? "by which rows are longer than those that the model was trained "
                                        "with"
                                      : "the length of the rows that the model was trained with");
    });
}
void require_all_options(const ConfigField&, const std::monostate&, const GivenFields&) {}

// rope_scaling_type, rope_scaling_factor and so on. Without a type: of the kind that the flavour has, or else
// Llama 3.1's. A factor of 1 removes the scaling.
void override_field(const ConfigField& field, RopeScaling& value, const GivenFields& given) {
    const auto type = given(fmt::format("{}_type", field.name)),
               factor = given(fmt::format("{}_factor", field.name));
    const bool is_none = std::holds_alternative<std::monostate>(value);
    RopeScaling kind = is_none && !type && factor ? Llama3Scaling{} : value;
    if (type) {
        const RopeScaling wanted = *scaling_named(std::get<std::string>(*type));
        if (wanted.index() != value.index()) {
            std::visit([&](const auto& usual) { require_all_options(field, usual, given); }, wanted);
            kind = wanted;
        }
    }
    if (factor && number_of(*factor) == 1)
        value = {};
    else
        value =
            std::visit([&](const auto& known) { return scaling_with_options(field, known, given); }, kind);
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
            "from another; set model.ffn_hidden too",
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

void refuse_other_fields(const DecoderConfig& model, const GivenFields& given) {
    for (const Described& other : fields_of_other_kinds(model)) {
        const auto found = given(other.field.name);
        if (!found) continue;
        const std::string value = std::visit([](const auto& known) { return Json(known).text(); }, *found);
        if (value != other.value.text())
            throw ConfigError("model.{} = {}: {}; remove it", other.field.name, value,
                              about_other_kind(model));
    }
}

// A list of layers does not say what further layers are.
void refuse_other_length(const DecoderConfig& model, int64_t layers) {
    if (model.layers == layers) return;
    for (const auto& [choice, field] :
         {std::pair(&model.windowed, "window_layers"), std::pair(&model.without_rope, "nope_layers"),
          std::pair(&model.moe_layers, "moe.layers")})
        if (choice->is_list(layers))
            throw ConfigError(
                "model.n_layers = {}: {} {} has a list of {} layers ({} = \"{}\") that says which of them "
                "are alike, and no rule for others; remove model.n_layers, or change the list where the "
                "model comes from, such as in config.json",
                model.layers, model.family, model.flavor, layers, field, choice->word);
}

// The numbers of heads and their width follow from each other where they are not given. `was_usual`: the
// heads of the flavour were as wide as the model together.
void follow_heads(DecoderConfig& model, bool was_usual, const GivenFields& given) {
    // if only n_heads is given, there are at most as many key/value heads
    if (auto* a = std::get_if<GroupedAttentionConfig>(&model.attention);
        a && given("n_heads") && !given("n_kv_heads"))
        a->kv_heads = std::min(a->kv_heads, a->heads);
    const int64_t heads = model.head_sizes().heads;
    if ((given("dim") || given("n_heads")) && !given("head_dim") && was_usual)
        std::visit([&](auto& a) { a.head_dim = heads > 0 && model.dim % heads == 0 ? model.dim / heads : 0; },
                   model.attention);
}

}  // namespace

void override_fields(DecoderConfig& model, const GivenFields& given) {
    refuse_other_fields(model, given);
    const HeadSizes heads = model.head_sizes();
    const bool is_usual_head = heads.head_dim * heads.heads == model.dim;
    const int64_t layers = model.layers;
    MoeConfig& m = model.moe;
    int64_t shared = m.hidden > 0 ? m.shared_hidden / m.hidden : 0;  // the number of shared experts
    for_each_field(model, [&](const ConfigField& field, auto& value) {
        if (field.kind != FieldKind::identity) override_field(field, value, given);
    });
    refuse_other_length(model, layers);
    follow_heads(model, is_usual_head, given);
    follow_ffn_width(model, given);
    if (const auto number = given("moe.num_shared_experts")) shared = std::get<int64_t>(*number);
    if (given("moe.num_shared_experts") || given("moe.hidden")) m.shared_hidden = shared * m.hidden;
}

}  // namespace coeus
