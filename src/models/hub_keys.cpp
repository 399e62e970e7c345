// SPDX-License-Identifier: Apache-2.0
// Keys of config.json that have one value. hub_layers.cpp has those of layers, hub_experts.cpp those of
// experts.
#include "coeus/models/hub_keys.hpp"

#include "coeus/base/text.hpp"
#include "coeus/models/config_fields.hpp"
#include "coeus/models/family.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

namespace coeus {

namespace {

void note_all_keys(const JsonView& part) {
    if (!part.is_object()) return;
    for (const auto& [key, value] : part.items()) note_all_keys(value);
}

}  // namespace

HubKeys::HubKeys(const ModelFamily& family, const JsonView& json)
    : family_(family), architecture_(json["architectures"].strings().front()), in_(json) {}

HubKeys::HubKeys(const ModelFamily& family, Json& json) : family_(family), out_(&json) {
    architecture(family.architectures.front().c_str(), true);
}

const JsonView& HubKeys::json() const {
    require(in_.has_value(), "config.json is written, not read");
    return *in_;
}

void HubKeys::write(const char* key, Json value) {
    if (out_)
        out_->set(key, std::move(value));
    else
        json().find(key);
}

void HubKeys::idle(std::initializer_list<const char*> keys) {
    for (const char* key : keys)
        if (in_) in_->find(key);
}

void HubKeys::idle_part(const char* key) {
    if (!in_) return;
    if (const auto part = in_->find(key)) note_all_keys(*part);
}

bool HubKeys::architecture(const char* name, bool is_this) {
    if (out_ && is_this) {
        architecture_ = name;
        out_->set("architectures", std::vector<std::string>{architecture_});
        const auto index =
            size_t(std::ranges::find(family_.architectures, name) - family_.architectures.begin());
        if (index < family_.model_types.size()) out_->set("model_type", family_.model_types[index]);
    }
    return architecture_ == name;
}

// ---- fields with usual keys

namespace {

void read(const JsonView& json, const ConfigField& field, int64_t& value) {
    value = integer_within(std::max<int64_t>(1, field.least), field.most, json);
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
void write_field(Json& json, const char* key, const T& value) {
    if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, double> || std::is_same_v<T, bool>)
        json.set(key, value);
}

// The usual key of a field in a family with such norms, null if there is none. The epsilon of LayerNorms has
// another one.
const char* usual_key(const ConfigField& field, NormType norms) {
    const bool is_of_layer_norm = norms == NormType::layer_norm && std::string_view(field.name) == "norm_eps";
    return is_of_layer_norm ? "layer_norm_eps" : field.hub;
}

template <class T>
bool is_missing(const ConfigField& field, const T& value) {
    if constexpr (std::is_same_v<T, int64_t>) return field.is_required && value == 0;
    return false;
}

void read_usual(const JsonView& json, DecoderConfig& config) {
    for_each_field(config, [&](const ConfigField& field, auto& value) {
        const char* key = usual_key(field, config.norm_type);
        if (!key) return;
        if (const auto found = json.find(key)) read(*found, field, value);
    });
    if (auto* a = std::get_if<GroupedAttentionConfig>(&config.attention)) {
        if (a->kv_heads == 0 || is_null(json, head_field::kv_heads.hub)) a->kv_heads = a->heads;
        if (a->heads > 0 && (a->head_dim == 0 || is_null(json, head_field::head_dim.hub)))
            a->head_dim = config.dim / a->heads;
    }
    for_each_field(config, [&](const ConfigField& field, const auto& value) {
        if (field.hub && is_missing(field, value)) json[field.hub].reject("must be at least 1");
    });
}

}  // namespace

void HubKeys::usual(DecoderConfig& config, const DecoderConfig& absent) {
    if (in_) {
        config = absent;
        read_usual(*in_, config);
        if (config.is_latent())
            config.latent().head_dim = absent.head_sizes().head_dim;  // see latent_attention
    } else {
        for_each_field(config, [&](const ConfigField& field, const auto& value) {
            if (const char* key = usual_key(field, absent.norm_type)) write_field(*out_, key, value);
        });
    }
}

void HubKeys::usual_of_experts(DecoderConfig& config, const DecoderConfig& absent) {
    config.feed_forward.hidden = config.moe.hidden;
    usual(config, absent);
    config.moe.hidden = config.feed_forward.hidden;
    config.feed_forward = {};
}

// ---- single values

void HubKeys::constant(const char* key, const Json& value, const char* why, const char* synonym) {
    if (out_) {
        out_->set(key, value);
        return;
    }
    const auto found = in_->find(key);
    if (!found) return;
    const std::string text = found->value().text();
    if (text != value.text() && !(synonym && text == Json(synonym).text()))
        found->reject(fmt::format("must be {} ({})", value.text(), why));
}

std::optional<JsonView> HubKeys::find(const HubKey& key) const {
    const auto found = json().find(key.name);
    return key.also ? number_in_either(found, json().find(key.also)) : found;
}

void HubKeys::integer(HubKey key, int64_t& value, int64_t least) {
    if (out_)
        out_->set(key.name, value);
    else if (const auto found = find(key))
        value = integer_within(least, ConfigField{}.most, *found);
    else if (value < least)
        value = json()[key.name].integer();  // says that it is missing
}

void HubKeys::integer_or_null(HubKey key, int64_t& value) {
    if (out_)
        out_->set(key.name, value > 0 ? Json(value) : Json());
    else if (is_null(json(), key.name))
        value = 0;
    else if (value > 0 || find(key))
        integer(key, value);
}

void HubKeys::number(const char* key, double& value) {
    if (out_)
        out_->set(key, value);
    else
        value = in_->number(key, value);
}

void HubKeys::positive(const char* key, double& value) {
    number(key, value);
    if (in_ && !(value > 0)) json()[key].reject("must be greater than 0");
}

void HubKeys::truth(const char* key, bool& value) {
    if (out_)
        out_->set(key, value);
    else
        value = in_->boolean(key, value && !is_null(*in_, key));
}

void HubKeys::name_of(const char* key, const std::vector<std::string>& names, int64_t& index) {
    if (out_) {
        out_->set(key, names[size_t(index)]);
        return;
    }
    const auto found = in_->find(key);
    if (!found) return;
    const auto usual = size_t(index);
    index = std::ranges::find(names, found->string()) - names.begin();
    if (index < int64_t(names.size())) return;
    std::vector<std::string> quoted = {'"' + names[usual] + '"'};
    for (size_t i = 0; i < names.size(); ++i)
        if (i != usual) quoted.push_back('"' + names[i] + '"');
    found->reject(fmt::format("must be {} (others are not implemented yet)", join(quoted, " or ")));
}

void HubKeys::computed(const char* key, int64_t value, const char* rule) {
    if (out_)
        out_->set(key, value);
    else if (const auto found = in_->find(key); found && found->integer() != value)
        found->reject(fmt::format("must be {} ({})", value, rule));
}

// ---- RoPE

namespace {

// transformers takes an empty object as if it were absent.
bool has_entries(const JsonView& json, const char* object) {
    const auto found = json.find(object);
    return found && !(found->is_object() && found->size() == 0);
}

}  // namespace

void HubKeys::rope(DecoderConfig& config) {
    const auto* grouped = std::get_if<GroupedAttentionConfig>(&config.attention);
    if (in_)
        read_hub_rope(*in_, config.rope, config.max_seq_len, grouped ? grouped->rope_fraction : 1);
    else
        write_hub_rope(*out_, config.rope);
}

void HubKeys::whole_rope_if_absent(const DecoderConfig& config) {
    if (out_ || in_->contains("rope_parameters") || has_entries(*in_, "rope_scaling")) return;
    const auto theta = in_->find("rope_theta");
    if (theta && theta->number() != config.rope.theta)
        theta->reject(
            fmt::format("must be {}, because transformers takes another one for this architecture only if it "
                        "is written in "
                        "rope_parameters, with rope_type and its other keys",
                        config.rope.theta));
}

void HubKeys::ropes(DecoderConfig& config, const char* window_theta) {
    if (out_) {
        write_hub_ropes(*out_, config.rope, config.window_rope, window_theta);
        return;
    }
    read_hub_ropes(*in_, config.rope, config.window_rope, config.max_seq_len, window_theta);
    if (config.head_sizes().window == 0) config.window_rope = {};
}

namespace {

constexpr std::array rope_objects = {"rope_parameters", "rope_scaling"};
constexpr const char *scale_key = "llama_4_scaling_beta", *floor_key = "original_max_position_embeddings";

// `beside`: the floor outside of the object, where YaRN takes it too.
void read_temperature(const JsonView& rope, const std::optional<JsonView>& beside, int64_t positions,
                      Temperature& temperature) {
    const auto floor = number_in_either(beside, rope.find(floor_key));
    temperature.scale = rope.number(scale_key);
    temperature.floor = floor ? floor->number() : double(positions);
    if (!(temperature.scale >= 0)) rope[scale_key].reject("must be at least 0");
    if (floor && !(temperature.floor >= 1)) floor->reject("must be at least 1");
}

}  // namespace

void HubKeys::rope_and_temperature(DecoderConfig& config) {
    Temperature& temperature = config.grouped().temperature;
    if (out_) {
        write_hub_rope(*out_, config.rope);
        for (auto& [key, value] : *out_->as_object())
            if (std::ranges::find(rope_objects, key) != rope_objects.end() && value.as_object())
                value.set(scale_key, temperature.scale).set(floor_key, int64_t(temperature.floor));
        return;
    }
    constexpr std::array also = {scale_key, floor_key, "max_position_embeddings"};
    read_hub_rope(*in_, config.rope, config.max_seq_len, 1, also);
    std::optional<Temperature> first;
    for (const char* key : rope_objects) {
        const auto object = in_->find(key);
        if (!object || object->size() == 0) continue;
        read_temperature(*object, in_->find(floor_key), config.max_seq_len, temperature);
        if (first && *first != temperature) reject_both((*in_)[rope_objects.front()], *object);
        first = temperature;
    }
}

void HubKeys::rope_fraction(DecoderConfig& config) {
    const char* key = "partial_rotary_factor";
    double& fraction = config.grouped().rope_fraction;
    if (out_) {
        out_->set(key, fraction);
        return;
    }
    const auto within = [&](const char* part) -> std::optional<JsonView> {
        const auto object = in_->find(part);
        return object && object->is_object() ? object->find(key) : std::nullopt;
    };
    const auto now = within("rope_parameters"), older = within("rope_scaling"), beside = in_->find(key);
    if (now && has_entries(*in_, "rope_scaling") && !older && !beside && now->number() != fraction)
        now->reject(
            fmt::format("must be in rope_scaling too, or rope_scaling must be removed: transformers takes "
                        "rope_scaling instead of rope_parameters, and so {} for this",
                        fraction));
    for (const auto& found : {now, older, beside})
        if (found) fraction = found->number();
}

// ---- latent attention

void HubKeys::latent_attention(LatentAttentionConfig& a) {
    if (in_ && a.other_kv_heads)
        (*in_)["num_key_value_heads"].reject(fmt::format(
            "must be {}, as num_attention_heads (each head has its own keys and values)", a.heads));
    int64_t nope = a.head_dim - a.rope_dim, value = a.value_head_dim();
    integer("kv_lora_rank", a.kv_rank);
    integer_or_null("q_lora_rank", a.q_rank);
    integer({"qk_rope_head_dim", "head_dim"}, a.rope_dim);
    integer("qk_nope_head_dim", nope);
    integer("v_head_dim", value);
    a.head_dim = nope + a.rope_dim;
    a.value_dim = value;
    computed("qk_head_dim", a.head_dim, "qk_nope_head_dim + qk_rope_head_dim");
    write("head_dim", a.rope_dim);
}

// ---- shared by all

int64_t integer_within(int64_t least, int64_t most, const JsonView& json) {
    const int64_t value = json.integer();
    if (value < least) json.reject(fmt::format("must be at least {}", least));
    if (value > most) json.reject(fmt::format("must be at most {}", most));
    return value;
}

void reject_both(const JsonView& a, const JsonView& b) {
    throw ConfigError("{}: {} is {}, but {} is {}: they must agree; correct or remove one of the two",
                      a.file(), a.path(), a.value().text(), b.path(), b.value().text());
}

std::optional<JsonView> number_in_either(const std::optional<JsonView>& a, const std::optional<JsonView>& b) {
    if (a && b && a->number() != b->number()) reject_both(*a, *b);
    return a ? a : b;
}

bool is_null(const JsonView& json, const char* key) {
    return json.value().find(key) && !json.contains(key);
}

double without_last_digits(double number) {
    return std::stod(fmt::format("{:.12g}", number));
}

}  // namespace coeus
