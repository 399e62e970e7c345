// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/hub_config.hpp"

#include "coeus/base/text.hpp"
#include "coeus/models/config_fields.hpp"

namespace coeus {

namespace {

int64_t integer_within(int64_t least, int64_t most, const JsonView& json) {
    const int64_t value = json.integer();
    if (value < least) json.reject(fmt::format("must be at least {}", least));
    if (value > most) json.reject(fmt::format("must be at most {}", most));
    return value;
}

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

void reject_both(const JsonView& a, const JsonView& b) {
    throw ConfigError("{}: {} is {}, but {} is {}: they must agree; correct or remove one of the two",
                      a.file(), a.path(), a.value().text(), b.path(), b.value().text());
}

std::optional<JsonView> number_in_either(const std::optional<JsonView>& a, const std::optional<JsonView>& b) {
    if (a && b && a->number() != b->number()) reject_both(*a, *b);
    return a ? a : b;
}

int64_t at_least(int64_t least, const JsonView& json, const char* key, int64_t otherwise) {
    const auto found = json.find(key);
    return found ? integer_within(least, ConfigField{}.most, *found) : otherwise;
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
    layers.first = at_least(0, json, "max_window_layers", layers.first);
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
    config.grouped().window = at_least(1, json, "sliding_window", usual);
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
