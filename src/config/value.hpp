// SPDX-License-Identifier: Apache-2.0
// From what a user wrote to a field of Config: types, choices and rules of one option at a time.
#pragma once

#include "coeus/file/toml.hpp"
#include "errors.hpp"
#include "option.hpp"

#include <map>
#include <optional>
#include <string>

namespace coeus::config {

/// One value as it was given.
struct Setting {
    std::string name;  ///< as written: perhaps an older one
    TomlValue value;
    std::string text;   ///< the value as written
    std::string place;  ///< "inputs/x.toml:3:1", "command line"
};

/// By today's name; what is added first stays.
using Settings = std::map<std::string, Setting>;

/// The value of a command line's word: a boolean, a number, or text where it is neither or the type asks for
/// text.
TomlValue value_of_word(Type type, const std::string& word);

/// "unknown option training.step; did you mean training.steps?" `dashes`: those of the command line.
/// `others`: names that it also takes.
std::string unknown_option(const std::string& name, const char* dashes = "", Words others = {});

/// The type of an option or older name. ConfigError for an unknown name, with the nearest known one.
Type type_named(const std::string& name, const std::string& place);

/// Adds the settings of one deck or of the command line that no earlier one gives. Notes unknown names, and
/// an older and today's name together.
void add_layer(std::vector<Setting> given, Settings& settings, Errors& errors);

/// Checks the value against the option's type, choices and rule, and sets the field (no_effect options have
/// none).
void assign(const Option& option, const Setting& setting, Config& config);

/// The field's value; nothing for an optional field that is not set.
std::optional<TomlValue> value_of(const Option& option, Config& config);

/// "deck.toml:3:1: training.steps = 0: RULE"
[[noreturn]] void reject(const Setting& setting, const std::string& rule);

}  // namespace coeus::config
