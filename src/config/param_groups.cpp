// SPDX-License-Identifier: Apache-2.0
// optimizer.param_groups: a list of tables, as in newer torchtitan,
//   [[optimizer.param_groups]]
//   pattern = "norm"                            # found in the parameter's name
//   roles = ["norm", "bias"]                    # ours: and it has one of these roles
//   optimizer_name = "AdamW"
//   optimizer_kwargs = {lr = 1e-3, betas = [0.9, 0.95], weight_decay = 0}
// What a group does not say is as [optimizer] has it.
#include "coeus/optim/param_groups.hpp"

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

// Sets what a group's key says as the option of that name in [optimizer] would be set.
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
            config::reject(setting, "must be of " + join(choices, ", "));
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
        } else if (key == kwargs + "betas") {
            assign_betas(setting, scratch);
        } else if (key.starts_with(kwargs)) {
            assign_option(key.substr(kwargs.size()), setting, scratch);
        } else {
            config::reject(setting, "a group has pattern, roles, optimizer_name and optimizer_kwargs");
        }
    }
    if (group.pattern.empty() && group.roles.empty())
        throw ConfigError("optimizer.param_groups, group {}: needs pattern or roles", number);
    group.optimizer = scratch.optimizer;
    return group;
}

}  // namespace

std::vector<ParamGroupOptions> param_groups(const Config& config) {
    std::vector<ParamGroupOptions> groups;
    for (const TomlTable& table : config.optimizer.param_groups)
        groups.push_back(group_of(table.text, groups.size() + 1, config));
    return groups;
}

}  // namespace coeus
