// SPDX-License-Identifier: Apache-2.0
// RoPE in descriptions of models, and in config.json.
#include "coeus/models/parts/rope.hpp"

#include "coeus/base/text.hpp"
#include "coeus/models/hub_keys.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace coeus {

namespace {

// Calls visit(kind) with each kind of scaling, none too, with its usual values.
template <class Visit, class... Kinds>
void for_each_kind(const std::variant<Kinds...>&, const Visit& visit) {
    (visit(Kinds()), ...);
}

// The name of a kind in a description of a model; Llama 3.1's has none, because it was the only one at first.
std::string type_in_description(const RopeScaling& scaling) {
    if (std::holds_alternative<Llama3Scaling>(scaling)) return "";
    return std::visit([](const auto& kind) { return type_name(kind); }, scaling);
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
void read_part(const JsonView& json, std::vector<double>& values) {
    values.clear();
    for (const JsonView& element : json.elements()) values.push_back(element.number());
}
RopeScaling read_scaling_of(const std::monostate&, const JsonView& json) {
    json["type"].reject("is unknown to this version");
}
template <class Scaling>
RopeScaling read_scaling_of(Scaling scaling, const JsonView& json) {
    for_each_field(scaling,
                   [&](const ConfigField& field, auto& value) { read_part(json[field.name], value); });
    return scaling;
}

}  // namespace

std::optional<RopeScaling> scaling_named(std::string_view type) {
    std::optional<RopeScaling> found;
    for_each_kind(RopeScaling(), [&](const auto& kind) {
        if (type == type_name(kind)) found = kind;
    });
    return found;
}

Json describe_scaling(const RopeScaling& scaling) {
    return std::visit([](const auto& kind) { return scaling_to_json(kind); }, scaling);
}

RopeScaling scaling_from_description(const JsonView& json) {
    const std::string type = json.string("type", "");
    const RopeScaling kind = type.empty() ? Llama3Scaling() : scaling_named(type).value_or(RopeScaling());
    return std::visit([&](const auto& usual) { return read_scaling_of(usual, json); }, kind);
}

namespace {

constexpr const char *theta_key = "rope_theta", *length_key = "original_max_position_embeddings";

std::string type_in(const JsonView& rope) {
    const auto now = rope.find("rope_type"), before = rope.find("type");
    if (now && before && now->string() != before->string()) reject_both(*now, *before);
    const std::string type = now ? now->string() : before ? before->string() : "default";
    // the first names of LongRoPE, in folders of Phi 3
    const bool is_older = type == "su" || (type == "yarn" && rope.contains("short_factor"));
    return is_older ? "longrope" : type;
}

// What an object of RoPE is read with.
struct Around {
    std::optional<JsonView> original;        // the key beside the object
    int64_t positions;                       // the model's longest sequence
    std::span<const char* const> also = {};  // keys of the object that others read
};

// An object of RoPE must have no other keys than these.
void require_rope_keys(const JsonView& rope, const Around& around, std::vector<std::string> keys) {
    const std::string type = type_in(rope);
    for (const char* key : {"rope_type", "type", theta_key, "partial_rotary_factor"}) keys.emplace_back(key);
    keys.insert(keys.end(), around.also.begin(), around.also.end());
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

void read_original_positions(const JsonView& rope, const Around& around, double& positions) {
    const auto original = number_in_either(around.original, rope.find(length_key));
    positions = original ? original->number() : double(around.positions);
    if (original && !(positions >= 1)) original->reject("must be at least 1");
    if (original && positions > double(most_positions))
        original->reject(fmt::format("must be at most {}", most_positions));
}

// Whether an object without a factor means, as in transformers, that the original length is stretched to the
// model's. A YaRN must say so with null.
template <class Scaling>
bool stretches_to_model(const JsonView& rope, const Scaling&) {
    if (std::is_same_v<Scaling, LongRopeScaling>) return !rope.contains("factor");
    return std::is_same_v<Scaling, YarnScaling> && is_null(rope, "factor");
}

// Reads the fields of a scaling. A field that is absent and not required keeps its value.
template <class Scaling>
void read_scaling_fields(const JsonView& rope, const Around& around, Scaling& scaling) {
    std::vector<std::string> keys;
    for_each_field(scaling, [&](const ConfigField& field, auto& value) {
        keys.emplace_back(field.hub);
        if constexpr (std::is_same_v<decltype(value), double&>)
            if (keys.back() == length_key) return read_original_positions(rope, around, value);
        const bool is_given = rope.contains(field.hub);
        if (keys.back() == "factor" ? stretches_to_model(rope, scaling) : !field.is_required && !is_given)
            return;
        read_part(rope[field.hub], value);
    });
    require_rope_keys(rope, around, std::move(keys));
    if constexpr (requires { scaling.original_positions; })
        if (stretches_to_model(rope, scaling))
            scaling.factor = double(around.positions) / scaling.original_positions;
}

[[noreturn]] void reject_factor(const JsonView& rope, double factor) {
    if (rope.contains("factor")) rope["factor"].reject("must be at least 1");
    throw ConfigError("{}: {}.factor is null, and the model's positions are only {} of the original ones",
                      rope.file(), rope.path(), factor);
}

// What a scaling must be besides its types and keys.
void check(const JsonView&, const Around&, const LinearScaling&) {}
void check(const JsonView& rope, const Around& around, const DynamicScaling& scaling) {
    if (scaling.original_positions != double(around.positions))
        number_in_either(around.original, rope.find(length_key))
            ->reject(fmt::format("must be max_position_embeddings, {}, which readers take for this type",
                                 around.positions));
}
void check(const JsonView& rope, const Around&, const Llama3Scaling& scaling) {
    if (!(scaling.low_frequency > 0)) rope["low_freq_factor"].reject("must be greater than 0");
    if (!(scaling.high_frequency >= scaling.low_frequency))
        rope["high_freq_factor"].reject("must be at least low_freq_factor");
}
void check(const JsonView& rope, const Around&, const YarnScaling& scaling) {
    if (!(scaling.beta_slow > 0)) rope["beta_slow"].reject("must be greater than 0");
    if (!(scaling.beta_fast >= scaling.beta_slow)) rope["beta_fast"].reject("must be at least beta_slow");
    for (const char* key : {"attention_factor", "mscale", "mscale_all_dim"})
        if (rope.number(key, 0) < 0) rope[key].reject("must be at least 0");
}
void check(const JsonView& rope, const Around&, const LongRopeScaling& scaling) {
    for (const char* key : {"short_factor", "long_factor"})
        for (const JsonView& factor : rope[key].elements())
            if (!(factor.number() > 0)) factor.reject("must be greater than 0");
    if (scaling.attention_factor < 0) rope["attention_factor"].reject("must be at least 0");
    // the logarithm of the original length divides
    if (scaling.original_positions < 2 && scaling.factor > 1)
        throw ConfigError("{}: {} of type longrope needs an original length of at least 2, not {}",
                          rope.file(), rope.path(), scaling.original_positions);
}

RopeScaling read_kind(const JsonView& rope, const Around& around, const std::monostate&) {
    require_rope_keys(rope, around, {});
    return {};
}
template <class Scaling>
RopeScaling read_kind(const JsonView& rope, const Around& around, Scaling scaling) {
    read_scaling_fields(rope, around, scaling);
    // a LongRoPE that does not lengthen rows does not change cos and sin either
    if constexpr (std::is_same_v<Scaling, LongRopeScaling>)
        if (!rope.contains("factor")) scaling.factor = std::max(1.0, scaling.factor);
    if (!(scaling.factor >= 1)) reject_factor(rope, scaling.factor);
    check(rope, around, scaling);
    return scaling;
}

std::vector<std::string> hub_types() {
    std::vector<std::string> all;
    for_each_kind(RopeScaling(),
                  [&](const auto& kind) { all.push_back(fmt::format("\"{}\"", type_name(kind))); });
    return all;
}

// The scaling of a rope_parameters or rope_scaling object.
RopeScaling read_scaling(const JsonView& rope, const Around& around) {
    const std::string type = type_in(rope);
    const auto usual = scaling_named(type);
    if (!usual)
        throw ConfigError("{}: {} of type \"{}\" is unknown to this version, which knows {}", rope.file(),
                          rope.path(), type, join(hub_types(), ", "));
    return std::visit([&](const auto& kind) { return read_kind(rope, around, kind); }, *usual);
}

bool is_given(double value) {
    return value != 0;
}
bool is_given(bool) {
    return true;
}
bool is_given(const std::vector<double>&) {
    return true;
}
void write_scaling(Json&, const std::monostate&) {}
template <class Scaling>
void write_scaling(Json& json, const Scaling& scaling) {
    for_each_field(scaling, [&](const ConfigField& field, const auto& value) {
        if (is_given(value)) json.set(field.hub, value);
    });
    // a whole number, as transformers writes it
    if constexpr (requires { scaling.original_positions; })
        json.set(length_key, int64_t(scaling.original_positions));
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
void read_hub_rope(const JsonView& json, RopeConfig& rope, int64_t positions, double fraction,
                   std::span<const char* const> also) {
    require_fraction(json, fraction);
    const Around around = {json.find(length_key), positions, also};
    std::optional<JsonView> theta = json.find(theta_key), form;
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
        const auto found = json.find(key);
        if (!found || (std::string_view(key) == "rope_scaling" && found->is_object() && found->size() == 0))
            continue;
        if (!found->is_object()) found->reject("must be an object");
        require_fraction(*found, fraction);
        const RopeScaling scaling = read_scaling(*found, around);
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

namespace {

// A scaling in an object that may have other keys.
Json with_scaling(Json object, const RopeScaling& scaling) {
    object.set("rope_type", std::visit([](const auto& kind) { return type_name(kind); }, scaling));
    std::visit([&](const auto& kind) { write_scaling(object, kind); }, scaling);
    return object;
}
Json hub_object(double theta, const RopeScaling& scaling) {
    return with_scaling(Json::object().set(theta_key, theta), scaling);
}
// The keys of earlier versions.
void write_older_form(Json& json, const RopeConfig& rope) {
    const bool is_scaled = rope.scaling != RopeScaling{};
    json.set(theta_key, rope.theta)
        .set("rope_scaling", is_scaled ? with_scaling(Json::object(), rope.scaling) : Json());
}
void write_original_length(Json& json, const RopeScaling& scaling) {
    if (const auto* dynamic = std::get_if<DynamicScaling>(&scaling))
        json.set("max_position_embeddings", int64_t(dynamic->original_positions));
}

}  // namespace

void write_hub_rope(Json& json, const RopeConfig& rope) {
    json.set("rope_parameters", hub_object(rope.theta, rope.scaling));
    write_older_form(json, rope);
    write_original_length(json, rope.scaling);
}

namespace {

constexpr const char *of_full = "full_attention", *of_windowed = "sliding_attention";

// Sets theta and scaling by an object. `beside`: theta outside of it.
template <class Rope>
void read_object(const JsonView& object, const std::optional<JsonView>& beside, int64_t positions,
                 Rope& rope) {
    if (!object.is_object()) object.reject("must be an object");
    require_fraction(object, 1);
    rope.scaling = read_scaling(object, {std::nullopt, positions});
    if (const auto theta = number_in_either(beside, object.find(theta_key))) rope.theta = theta->number();
}

// transformers 5 puts the keys of rope_scaling into an object that has a rope_type, "default", and then does
// not read a type. transformers 4 reads it.
void require_new_type(const JsonView& scaling) {
    const auto type = scaling.find("type");
    if (type && type->string() != "default" && !scaling.contains("rope_type"))
        type->reject(
            "must be named rope_type: transformers 4 scales RoPE by a type, and transformers 5 does not "
            "scale "
            "it for this architecture (for no scaling, set rope_scaling to null)");
}

// The objects of rope_parameters are those of the two kinds of layers.
void require_two_ropes(const JsonView& parameters) {
    if (!parameters.is_object()) parameters.reject("must be an object");
    for (const auto& [key, value] : parameters.items())
        if (key != of_full && key != of_windowed)
            throw ConfigError(
                "{}: {} is not a type of layer; this architecture gives each type its own RoPE: write the "
                "keys "
                "in {}.{} and in {}.{}",
                value.file(), value.path(), parameters.path(), of_full, parameters.path(), of_windowed);
}

}  // namespace

void read_hub_ropes(const JsonView& json, RopeConfig& rope, WindowRope& in_windows, int64_t positions,
                    const char* window_theta) {
    const auto now = json.find("rope_parameters"), before = json.find("rope_scaling"),
               theta = json.find(theta_key);
    std::optional<JsonView> full, windowed, theta_in_windows;
    if (now) {
        require_two_ropes(*now);
        full = now->find(of_full);
        windowed = now->find(of_windowed);
    }
    if (theta) rope.theta = theta->number();
    if (full) read_object(*full, theta, positions, rope);
    if (before && !(before->is_object() && before->size() == 0)) {
        if (before->is_object()) require_new_type(*before);
        RopeConfig older = rope;
        read_object(*before, theta ? theta : full ? full->find(theta_key) : std::nullopt, positions, older);
        if (full && older != rope) reject_both(*before, *full);
        rope = older;
    }
    if (window_theta) theta_in_windows = json.find(window_theta);
    if (theta_in_windows) in_windows.theta = theta_in_windows->number();
    if (windowed) read_object(*windowed, theta_in_windows, positions, in_windows);
    const bool is_clear = window_theta || (windowed && windowed->contains(theta_key));
    if (theta && !is_clear && theta->number() != in_windows.theta)
        theta->reject(
            fmt::format("must be {0}, or rope_parameters.{1}.{2} must say what the layers with a window "
                        "have: transformers 4 "
                        "takes {2} for them too, and transformers 5 takes {0}",
                        in_windows.theta, of_windowed, theta_key));
}

void write_hub_ropes(Json& json, const RopeConfig& rope, const WindowRope& in_windows,
                     const char* window_theta) {
    const RopeConfig windowed = in_windows.beside(rope);
    json.set("rope_parameters", Json::object()
                                    .set(of_full, hub_object(rope.theta, rope.scaling))
                                    .set(of_windowed, hub_object(windowed.theta, windowed.scaling)));
    write_older_form(json, rope);
    if (window_theta) json.set(window_theta, windowed.theta);
    write_original_length(json, rope.scaling);
}

void require_valid(const RopeConfig& rope, int64_t width) {
    const auto* scaling = std::get_if<LongRopeScaling>(&rope.scaling);
    if (!scaling) return;
    for (const auto& [name, factors] :
         {std::pair("short_factor", &scaling->short_factor), std::pair("long_factor", &scaling->long_factor)})
        if (int64_t(factors->size()) != width / 2)
            throw ConfigError(
                "{} of the scaling of RoPE must have {} numbers, one for each pair of the {} rotated "
                "columns of a head; it has {}",
                name, width / 2, width, factors->size());
}

}  // namespace coeus
