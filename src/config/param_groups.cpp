// SPDX-License-Identifier: Apache-2.0
// optimizer.param_groups: a list of tables, as in newer torchtitan,
//   [[optimizer.param_groups]]
//   pattern = "norm"                            # must be found in the parameter's name
//   roles = ["norm", "bias"]                    # Coeus only: its role must be one of these
//   optimizer_name = "AdamW"
//   optimizer_kwargs = {lr = 1e-3, betas = [0.9, 0.95], weight_decay = 0}
// Options that a group does not set are those of [optimizer].
#include "check.hpp"
#include "coeus/base/text.hpp"
#include "coeus/config/config.hpp"
#include "value.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace coeus {

namespace {

using config::Setting;

// The setting of one key of a group, for messages.
Setting setting_of(const std::string& name, size_t number, const TomlValue& value) {
    return {.name = name,
            .value = value,
            .text = toml_text(value),
            .place = fmt::format("optimizer.param_groups, group {}", number)};
}

// Sets an option of a group in the same way as the option with that name in [optimizer].
void assign_option(const std::string& key, const Setting& setting, Config& scratch) {
    const config::Option* option = config::find_option("optimizer." + key);
    const bool is_there =
        option != nullptr && option->type != config::Type::tables &&
        (option->status == config::Status::works || option->status == config::Status::no_effect);
    if (!is_there) config::reject(setting, "is not an option of an optimizer");
    config::assign(*option, setting, scratch);
}

void assign_betas(const Setting& setting, Config& scratch) {
    const auto* betas = setting.value.as<TomlValue::List>();
    if (betas == nullptr || betas->size() != 2)
        config::reject(setting, "must be two numbers, such as [0.9, 0.95]");
    const char* const names[] = {"beta1", "beta2"};
    for (size_t i = 0; i < 2; ++i) {
        Setting one = setting;
        one.value = (*betas)[i];
        assign_option(names[i], one, scratch);
    }
}

Words words_of(const Setting& setting, const Words& choices) {
    TomlValue::List list = {setting.value};
    if (const auto* several = setting.value.as<TomlValue::List>()) list = *several;
    Words words;
    for (const TomlValue& element : list) {
        const std::string* word = element.as<std::string>();
        if (word == nullptr || std::find(choices.begin(), choices.end(), *word) == choices.end())
            config::reject(setting, "must be one or more of " + join(choices, ", "));
        words.push_back(*word);
    }
    return words;
}

ParamGroupOptions group_of(const std::string& table, size_t number, const Config& config) {
    const std::string kwargs = "optimizer_kwargs.";
    ParamGroupOptions group;
    Config scratch = config;
    for (const TomlEntry& entry : parse_toml("group = " + table, "optimizer.param_groups")) {
        const std::string key = entry.key.substr(std::string("group.").size());
        const Setting setting = setting_of(key, number, entry.value);
        if (key == "pattern") {
            if (entry.value.as<std::string>() == nullptr)
                config::reject(setting, "must be a regular expression in quotes");
            group.pattern = *entry.value.as<std::string>();
        } else if (key == "roles") {
            group.roles = words_of(setting, role_names());
        } else if (key == "optimizer_name") {
            assign_option("name", setting, scratch);
            group.names_optimizer = true;
        } else if (key == kwargs + "betas") {
            assign_betas(setting, scratch);
        } else if (key.starts_with(kwargs)) {
            assign_option(key.substr(kwargs.size()), setting, scratch);
        } else {
            config::reject(
                setting,
                "is not a key of a group; its keys are pattern, roles, optimizer_name and optimizer_kwargs");
        }
    }
    if (group.pattern.empty() && group.roles.empty())
        throw ConfigError("optimizer.param_groups, group {}: needs pattern or roles", number);
    group.optimizer = scratch.optimizer;
    return group;
}

// The optimizers that update the parameters of a group, or those in no group.
Words optimizers_of(const ParamGroupOptions& group) {
    Words names = {group.optimizer.name};
    const std::string substitute = substitute_of(group.optimizer.name);
    if (!group.names_optimizer && !substitute.empty()) names.push_back(substitute);
    return names;
}

void add_if_unread(const std::string& option, const Words& optimizers, const std::string& place,
                   Words& notices) {
    const std::string name = option == "betas" ? "beta1" : option;
    const auto reads = [&](const std::string& optimizer) { return reads_option(optimizer, name); };
    if (std::none_of(optimizers.begin(), optimizers.end(), reads))
        notices.push_back(
            fmt::format("{}{} has no effect: it is not used by {}", place, option, join(optimizers, ", ")));
}

}  // namespace

namespace config {

Words unread_optimizer_options(const Config& config) {
    Words notices, optimizers = optimizers_of({.pattern = "", .roles = {}, .optimizer = config.optimizer});
    for (const ParamGroupOptions& group : param_groups(config)) {
        const Words more = optimizers_of(group);
        for (const std::string& name : more)
            if (std::find(optimizers.begin(), optimizers.end(), name) == optimizers.end())
                optimizers.push_back(name);
    }
    Config given = config, plain;
    const std::string section = "optimizer";
    for (const Option& option : options())
        if (option.section() == section && option.slot != nullptr &&
            value_of(option, given) != value_of(option, plain))
            add_if_unread(option.name.substr(section.size() + 1), optimizers, section + ".", notices);
    size_t number = 0;
    for (const TomlTable& table : config.optimizer.param_groups) {
        const ParamGroupOptions group = group_of(table.text, ++number, config);
        const std::string kwargs = "optimizer_kwargs.";
        for (const TomlEntry& entry : parse_toml("group = " + table.text, "optimizer.param_groups")) {
            const std::string key = entry.key.substr(std::string("group.").size());
            if (!key.starts_with(kwargs)) continue;
            const std::string option = key.substr(kwargs.size());
            add_if_unread(option, optimizers_of(group),
                          fmt::format("optimizer.param_groups, group {}: {}", number, kwargs), notices);
        }
    }
    return notices;
}

}  // namespace config

std::vector<ParamGroupOptions> param_groups(const Config& config) {
    if (config.optimizer.param_groups.size() > most_param_groups)
        throw ConfigError("optimizer.param_groups: has {} groups; at most {} are possible",
                          config.optimizer.param_groups.size(), most_param_groups);
    std::vector<ParamGroupOptions> groups;
    for (const TomlTable& table : config.optimizer.param_groups)
        groups.push_back(group_of(table.text, groups.size() + 1, config));
    return groups;
}

}  // namespace coeus
