// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/hub_config.hpp"

#include "coeus/base/text.hpp"
#include "coeus/models/config_fields.hpp"

#include <array>
#include <utility>

namespace coeus {

namespace {

void read(const JsonView& json, const ConfigField& field, int64_t& value) {
    const int64_t least = std::max<int64_t>(1, field.least);
    if (json.integer() < least) json.reject(fmt::format("must be at least {}", least));
    value = json.integer();
}
void read(const JsonView& json, const ConfigField&, double& value) {
    value = json.number();
}
void read(const JsonView& json, const ConfigField&, bool& value) {
    value = json.boolean();
}
// fields of other types have no usual key
template <class T>
void read(const JsonView&, const ConfigField&, const T&) {}

template <class T>
void write(Json& json, const ConfigField& field, const T& value) {
    if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, double> || std::is_same_v<T, bool>)
        json.set(field.hub, value);
}

template <class T>
bool is_missing(const ConfigField& field, const T& value) {
    if constexpr (std::is_same_v<T, int64_t>) return field.is_required && value == 0;
    return false;
}

}  // namespace

void read_hub_fields(const JsonView& json, DecoderConfig& config) {
    for_each_field(config, [&](const ConfigField& field, auto& value) {
        if (!field.hub) return;
        if (const auto found = json.find(field.hub)) read(*found, field, value);
    });
    if (auto* a = std::get_if<GroupedAttentionConfig>(&config.attention); a && a->kv_heads == 0)
        a->kv_heads = a->heads;
    std::visit(
        [&](auto& a) {
            if (a.head_dim == 0 && a.heads > 0) a.head_dim = config.dim / a.heads;
        },
        config.attention);
    for_each_field(config, [&](const ConfigField& field, const auto& value) {
        if (field.hub && is_missing(field, value)) json[field.hub].reject("must be at least 1");
    });
}

void write_hub_fields(Json& json, const DecoderConfig& config) {
    for_each_field(config, [&](const ConfigField& field, const auto& value) {
        if (field.hub) write(json, field, value);
    });
}

namespace {

constexpr const char *theta_key = "rope_theta", *length_key = "original_max_position_embeddings";

// Refuses two places in config.json that contradict each other.
[[noreturn]] void reject_both(const JsonView& a, const JsonView& b) {
    throw ConfigError("{}: {} is {}, but {} is {}: they must agree; correct or remove one of the two",
                      a.file(), a.path(), a.value().text(), b.path(), b.value().text());
}

// The value of two keys for the same number, of which one may be absent; if both are there, they must agree.
std::optional<JsonView> number_in_either(const std::optional<JsonView>& a, const std::optional<JsonView>& b) {
    if (a && b && a->number() != b->number()) reject_both(*a, *b);
    return a ? a : b;
}

std::string type_in(const JsonView& rope) {
    const auto now = rope.find("rope_type"), before = rope.find("type");
    if (now && before && now->string() != before->string()) reject_both(*now, *before);
    return now ? now->string() : before ? before->string() : "default";
}

// An object of RoPE must have no other keys than these.
void require_rope_keys(const JsonView& rope, const std::string& type, std::vector<std::string> keys) {
    for (const char* key : {"rope_type", "type", theta_key, "partial_rotary_factor"}) keys.emplace_back(key);
    for (const auto& [key, value] : rope.items()) {
        // "finetuned" tells how the weights of some models with YaRN were made
        if (value.is_null() || key == "finetuned" || std::ranges::find(keys, key) != keys.end()) continue;
        if (value.is_object())
            throw ConfigError(
                "{}: {} gives each type of layer its own RoPE ({}), but this architecture has one for all: "
                "write its keys in {} itself",
                rope.file(), rope.path(), key, rope.path());
        const std::string near = nearest_name(key, keys);
        throw ConfigError("{}: {} is not a key of RoPE of type \"{}\"; {}remove it", rope.file(),
                          value.path(), type,
                          near.empty() ? "" : "did you mean \"" + near + "\"? Otherwise ");
    }
}

// What the fields of a scaling depend on outside of its object.
struct Lengths {
    std::optional<JsonView> original;  // the key beside the object
    int64_t positions;                 // the model's longest sequence
};

[[noreturn]] void reject_factor(const JsonView& rope, double factor) {
    if (rope.contains("factor")) rope["factor"].reject("must be at least 1");
    throw ConfigError("{}: {}.factor is null, and the model's positions are only {} of the original ones",
                      rope.file(), rope.path(), factor);
}

// Reads the fields of a scaling. A field that is absent and not required keeps its value.
template <class Scaling>
void read_scaling_fields(const JsonView& rope, const Lengths& lengths, Scaling& scaling) {
    const auto original = number_in_either(lengths.original, rope.find(length_key));
    scaling.original_positions = original ? original->number() : double(lengths.positions);
    if (original && !(scaling.original_positions >= 1)) original->reject("must be at least 1");
    std::vector<std::string> keys;
    for_each_field(scaling, [&](const ConfigField& field, auto& value) {
        keys.emplace_back(field.hub);
        if (keys.back() == length_key || (!field.is_required && !rope.contains(field.hub))) return;
        // as in transformers, a YaRN without a factor stretches the original length to the model's
        if (std::is_same_v<Scaling, YarnScaling> && keys.back() == "factor" && is_null(rope, "factor")) {
            scaling.factor = double(lengths.positions) / scaling.original_positions;
            return;
        }
        const JsonView found = rope[field.hub];
        if constexpr (std::is_same_v<decltype(value), bool&>)
            value = found.boolean();
        else
            value = found.number();
    });
    require_rope_keys(rope, type_in(rope), std::move(keys));
    if (!(scaling.factor >= 1)) reject_factor(rope, scaling.factor);
}

Llama3Scaling read_llama3(const JsonView& rope, const Lengths& lengths) {
    Llama3Scaling scaling;
    read_scaling_fields(rope, lengths, scaling);
    if (!(scaling.low_frequency > 0)) rope["low_freq_factor"].reject("must be greater than 0");
    if (!(scaling.high_frequency >= scaling.low_frequency))
        rope["high_freq_factor"].reject("must be at least low_freq_factor");
    return scaling;
}

YarnScaling read_yarn(const JsonView& rope, const Lengths& lengths) {
    YarnScaling scaling;
    read_scaling_fields(rope, lengths, scaling);
    if (!(scaling.beta_slow > 0)) rope["beta_slow"].reject("must be greater than 0");
    if (!(scaling.beta_fast >= scaling.beta_slow)) rope["beta_fast"].reject("must be at least beta_slow");
    for (const char* key : {"attention_factor", "mscale", "mscale_all_dim"})
        if (rope.number(key, 0) < 0) rope[key].reject("must be at least 0");
    return scaling;
}

// The scaling of a rope_parameters or rope_scaling object.
RopeScaling read_scaling(const JsonView& rope, const Lengths& lengths) {
    const std::string type = type_in(rope);
    if (type == "llama3") return read_llama3(rope, lengths);
    if (type == "yarn") return read_yarn(rope, lengths);
    if (type != "default")
        throw ConfigError(
            "{}: {} of type \"{}\" is not implemented yet; \"default\", \"llama3\" and \"yarn\" are",
            rope.file(), rope.path(), type);
    require_rope_keys(rope, type, {});
    return {};
}

const char* type_of(const RopeScaling& scaling) {
    static constexpr std::array types = {"default", "llama3", "yarn"};
    static_assert(types.size() == std::variant_size_v<RopeScaling>);
    return types[scaling.index()];
}

void write_scaling(Json&, const std::monostate&) {}
template <class Scaling>
void write_scaling(Json& json, const Scaling& scaling) {
    for_each_field(scaling, [&](const ConfigField& field, auto value) {
        // 0: not given
        if (std::is_same_v<decltype(value), bool> || value != 0) json.set(field.hub, value);
    });
    // as transformers does
    json.set("original_max_position_embeddings", int64_t(scaling.original_positions));
}

void require_fraction(const JsonView& json, double fraction) {
    const auto found = json.find("partial_rotary_factor");
    if (found && found->number() != fraction)
        found->reject(fmt::format(
            "must be {} (the architecture fixes the columns of a head that RoPE rotates)", fraction));
}

}  // namespace

// transformers takes rope_scaling, if it is not empty, instead of rope_parameters as a whole. The two must
// therefore say the same, and so must theta and the original length in an object and beside it.
void read_hub_rope(const JsonView& json, RopeConfig& rope, int64_t positions, double fraction) {
    require_fraction(json, fraction);
    const Lengths lengths = {json.find(length_key), positions};
    std::optional<JsonView> theta = json.find(theta_key), form;
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
        const auto found = json.find(key);
        if (!found || (std::string_view(key) == "rope_scaling" && found->is_object() && found->size() == 0))
            continue;
        if (!found->is_object()) found->reject("must be an object");
        require_fraction(*found, fraction);
        const RopeScaling scaling = read_scaling(*found, lengths);
        if (form && scaling != rope.scaling)
            throw ConfigError(
                "{}: rope_scaling and rope_parameters are two forms of the same settings, but they do not "
                "agree; transformers takes rope_scaling alone, without the rope_theta of rope_parameters: "
                "write all settings in rope_parameters, and remove rope_scaling",
                json.file());
        const auto inner = found->find(theta_key);
        if (form && inner && !theta && inner->number() != rope.theta)
            throw ConfigError(
                "{}: transformers takes rope_scaling instead of rope_parameters, and so loses "
                "rope_parameters.rope_theta = {}: write it in rope_scaling too, or remove rope_scaling",
                json.file(), inner->value().text());
        theta = number_in_either(theta, inner);
        rope.scaling = scaling;
        form = found;
    }
    if (theta) rope.theta = theta->number();
}

void write_hub_rope(Json& json, const RopeConfig& rope) {
    const char* type = type_of(rope.scaling);
    Json now = Json::object().set("rope_theta", rope.theta).set("rope_type", type), before;
    if (rope.scaling != RopeScaling{}) {
        before = Json::object().set("rope_type", type);
        for (Json* form : {&now, &before})
            std::visit([&](const auto& kind) { write_scaling(*form, kind); }, rope.scaling);
    }
    json.set("rope_parameters", std::move(now))
        .set("rope_theta", rope.theta)
        .set("rope_scaling", std::move(before));
}

int64_t at_least(int64_t least, const JsonView& json, const char* key, int64_t otherwise) {
    const int64_t value = json.integer(key, otherwise);
    if (value < least) json[key].reject(fmt::format("must be at least {}", least));
    return value;
}

const char* either_key(const JsonView& json, const char* a, const char* b) {
    const auto first = json.find(a);
    number_in_either(first, json.find(b));
    return first ? a : b;
}

bool truth(const JsonView& json, const char* key, bool otherwise) {
    return json.boolean(key, otherwise && !is_null(json, key));
}

bool is_null(const JsonView& json, const char* key) {
    return json.value().find(key) && !json.contains(key);
}

namespace {

void note_all_keys(const JsonView& part) {
    if (!part.is_object()) return;
    for (const auto& [key, value] : part.items()) note_all_keys(value);
}

}  // namespace

void ignore_hub_part(const JsonView& json, const char* key) {
    if (const auto part = json.find(key)) note_all_keys(*part);
}

void require_hub_constants(const JsonView& json, std::span<const HubConstant> constants) {
    for (const HubConstant& constant : constants)
        if (const auto found = json.find(constant.key);
            found && found->value().text() != constant.value.text() &&
            !(constant.synonym && found->value().text() == Json(constant.synonym).text()))
            found->reject(fmt::format("must be {} ({})", constant.value.text(), constant.why));
}

void write_hub_constants(Json& json, std::span<const HubConstant> constants) {
    for (const HubConstant& constant : constants) json.set(constant.key, constant.value);
}

namespace {

constexpr const char* windowed_type = "sliding_attention";
constexpr const char* full_type = "full_attention";

}  // namespace

void read_hub_window(const JsonView& json, DecoderConfig& config, bool has_window, LayerChoice layers,
                     int64_t usual) {
    const bool is_absent = !json.value().find("sliding_window");  // null means none
    const auto window = json.find("sliding_window");
    layers.first = json.integer("max_window_layers", layers.first);
    const auto list = json.find("layer_types");
    std::vector<bool> has;
    if (list)
        for (const JsonView& type : list->elements()) {
            if (type.string() != windowed_type && type.string() != full_type)
                type.reject(fmt::format("must be \"{}\" or \"{}\" (others are not implemented yet)",
                                        windowed_type, full_type));
            has.push_back(type.string() == windowed_type);
        }
    else
        for (int64_t i = 0; i < config.layers; ++i) has.push_back(layers.has(i));
    if (list && int64_t(has.size()) != config.layers)
        list->reject(fmt::format("must have one type for each of {} layers", config.layers));
    if (!has_window || (!window && !is_absent) || std::ranges::find(has, true) == has.end()) {
        if (list && std::ranges::find(has, true) != has.end())
            list->reject(fmt::format("must not have \"{}\" without sliding_window", windowed_type));
        return;
    }
    if (window && window->integer() < 1) window->reject("must be at least 1");
    config.grouped().window = window ? window->integer() : usual;
    config.windowed = list ? LayerChoice::of(has, layers) : layers;
}

void write_hub_window(Json& json, const DecoderConfig& config) {
    const bool has_window = config.head_sizes().window > 0;
    json.set("sliding_window", has_window ? Json(config.head_sizes().window) : Json());
    json.set("max_window_layers", has_window ? config.windowed.first : config.layers);
    std::vector<std::string> types;
    for (int64_t i = 0; i < config.layers; ++i)
        types.emplace_back(config.layer(i).head_sizes().window > 0 ? windowed_type : full_type);
    json.set("layer_types", types);
}

double router_aux_loss_coef(const DecoderConfig& model) {
    return model.moe.sequence_balance * double(model.moe_rows()) / double(model.moe.top_k);
}

void set_router_aux_loss_coef(DecoderConfig& model, double coefficient) {
    const int64_t layers = model.moe_rows();
    model.moe.sequence_balance = layers > 0 ? coefficient * double(model.moe.top_k) / double(layers) : 0;
}

void read_hub_balance(const JsonView& json, DecoderConfig& config) {
    constexpr double usual = 0.001, most = 0.1;
    double coefficient = json.number("router_aux_loss_coef", usual);
    if (!(coefficient >= 0)) json["router_aux_loss_coef"].reject("must be at least 0");
    if (!truth(json, "output_router_logits", false) && coefficient > most) coefficient = usual;
    config.moe.balance_rate = 0;
    set_router_aux_loss_coef(config, coefficient);
}

void write_hub_balance(Json& json, const DecoderConfig& config) {
    if (config.moe.sequence_balance > 0 || !config.moe.has_balance_bias())
        json.set("router_aux_loss_coef", without_last_digits(router_aux_loss_coef(config)));
}

double without_last_digits(double number) {
    return std::stod(fmt::format("{:.12g}", number));
}

}  // namespace coeus
