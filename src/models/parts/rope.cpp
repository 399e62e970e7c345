// SPDX-License-Identifier: Apache-2.0
// RoPE in descriptions of models, and in config.json.
#include "coeus/models/parts/rope.hpp"

#include "coeus/base/text.hpp"
#include "coeus/models/hub_config.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace coeus {

namespace {

// The names of the kinds of scaling; Llama 3.1's has none, because it was the only one at first.
const char* type_in_description(const Llama3Scaling&) {
    return "";
}
const char* type_in_description(const YarnScaling&) {
    return "yarn";
}
Json scaling_to_json(const std::monostate&) {
    return {};
}
template <class Scaling>
Json scaling_to_json(const Scaling& scaling) {
    Json json = Json::object();
    if (const std::string type = type_in_description(scaling); !type.empty()) json.set("type", type);
    for_each_field(scaling, [&](const ConfigField& field, auto value) { json.set(field.name, value); });
    return json;
}

void read_part(const JsonView& json, double& value) {
    value = json.number();
}
void read_part(const JsonView& json, bool& value) {
    value = json.boolean();
}
template <class Scaling>
Scaling scaling_in(const JsonView& json) {
    Scaling scaling;
    for_each_field(scaling,
                   [&](const ConfigField& field, auto& value) { read_part(json[field.name], value); });
    return scaling;
}

}  // namespace

Json describe_scaling(const RopeScaling& scaling) {
    return std::visit([](const auto& kind) { return scaling_to_json(kind); }, scaling);
}

RopeScaling scaling_from_description(const JsonView& json) {
    const std::string type = json.string("type", type_in_description(Llama3Scaling{}));
    if (type == type_in_description(Llama3Scaling{})) return scaling_in<Llama3Scaling>(json);
    if (type == type_in_description(YarnScaling{})) return scaling_in<YarnScaling>(json);
    json["type"].reject("is unknown to this version");
}

namespace {

constexpr const char *theta_key = "rope_theta", *length_key = "original_max_position_embeddings";

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
    if (original && scaling.original_positions > double(most_positions))
        original->reject(fmt::format("must be at most {}", most_positions));
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

const char* hub_type_of(const RopeScaling& scaling) {
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
    const char* type = hub_type_of(rope.scaling);
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

}  // namespace coeus
