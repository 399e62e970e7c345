// SPDX-License-Identifier: Apache-2.0
// Keys of config.json that say which layers have a window, or no RoPE.
#include "coeus/models/hub_keys.hpp"

#include <algorithm>

namespace coeus {

namespace {

constexpr const char* windowed_type = "sliding_attention";
constexpr const char* full_type = "full_attention";

// For each layer, whether its entry is `chosen`.
std::vector<bool> entries_of(const JsonView& list, const HubLayers& form, int64_t layers) {
    const bool has_words = form.chosen.as_string();
    const auto is = [&](const JsonView& entry, const Json& value) {
        return has_words ? entry.string() == *value.as_string() : entry.integer() == *value.as_integer();
    };
    std::vector<bool> has;
    for (const JsonView& entry : list.elements()) {
        if (!is(entry, form.chosen) && !is(entry, form.other))
            entry.reject(fmt::format("must be {} or {}{}", form.chosen.text(), form.other.text(),
                                     has_words ? " (others are not implemented yet)" : ""));
        has.push_back(is(entry, form.chosen));
    }
    if (int64_t(has.size()) != layers)
        list.reject(
            fmt::format("must have one {} for each of {} layers", has_words ? "type" : "entry", layers));
    return has;
}

}  // namespace

LayerChoice all_but_each(int64_t period, int64_t layers, const LayerChoice& usual) {
    std::vector<bool> has;
    for (int64_t i = 0; i < layers; ++i) has.push_back((i + 1) % period != 0);
    return LayerChoice::of(has, usual);
}

void HubKeys::layers(const HubLayers& list, const DecoderConfig& config, LayerChoice& choice) {
    if (out_) {
        Json entries = Json::array();
        for (int64_t i = 0; i < config.layers; ++i) entries.push(choice.has(i) ? list.chosen : list.other);
        out_->set(list.key, std::move(entries));
        return;
    }
    const auto found = in_->find(list.key);
    if (!found || (list.may_be_empty && found->size() == 0)) return;
    const std::vector<bool> has = entries_of(*found, list, config.layers);
    for (int64_t i = 0; i < config.layers; ++i)
        if (choice.has(i) != has[size_t(i)]) {
            choice = LayerChoice::of(has, choice);
            return;
        }
}

void HubKeys::read_window(DecoderConfig& config, const HubWindow& form) {
    const bool is_used = !form.used_if || in_->boolean(form.used_if, false);
    int64_t window = config.grouped().window;  // of a folder without the key
    LayerChoice choice = config.windowed;
    config.grouped().window = 0;
    config.windowed = {};
    const char* key = "sliding_window";
    const bool is_none = is_null(*in_, key) || (window == 0 && !in_->contains(key));
    if (form.in_all_layers) {
        idle({key, "max_window_layers", "layer_types"});
        if (is_used && !is_none) integer(key, window), config.grouped().window = window;
        return;
    }
    if (form.has_first) integer("max_window_layers", choice.first, 0);
    const auto list = in_->find("layer_types");
    layers({"layer_types", windowed_type, full_type}, config, choice);
    if (!is_used || is_none || choice.before(config.layers) == 0) {
        if (list && choice.before(config.layers) > 0)
            list->reject(fmt::format("must not have \"{}\" without sliding_window", windowed_type));
        return;
    }
    integer(key, window);
    config.grouped().window = window;
    config.windowed = choice;
}

void HubKeys::window(DecoderConfig& config, const HubWindow& form) {
    if (in_) return read_window(config, form);
    const int64_t window = config.head_sizes().window;
    if (form.used_if) out_->set(form.used_if, window > 0);
    const int64_t written = window > 0 ? window : form.without_any;
    out_->set("sliding_window", written > 0 ? Json(written) : Json());
    if (!form.writes_lists) return;
    if (form.has_first) out_->set("max_window_layers", window > 0 ? config.windowed.first : config.layers);
    LayerChoice choice = window > 0 ? config.windowed : LayerChoice{.period = 0};
    layers({"layer_types", windowed_type, full_type}, config, choice);
}

void HubKeys::layers_without_rope(DecoderConfig& config) {
    LayerChoice& choice = config.without_rope;
    if (in_) {
        integer("no_rope_layer_interval", choice.period);
        choice.first = choice.period - 1;
    }
    layers({"no_rope_layers", 0, 1, true}, config, choice);
    if (choice.before(config.layers) == 0) choice = {.period = 0};
}

}  // namespace coeus
