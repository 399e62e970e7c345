// SPDX-License-Identifier: Apache-2.0
// Converts what a user wrote to a field of Config, one option at a time: types, choices and rules.
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
    std::string name;  ///< as written; it may be an alias
    TomlValue value;
    std::string text;   ///< the value as written
    std::string place;  ///< "inputs/x.toml:3:1", "command line"
};

/// By the name of the option, not an alias. The first value that is added stays.
using Settings = std::map<std::string, Setting>;

/// The value of a word on the command line: a boolean or a number, if the type is one and the word can be
/// read as one; else text.
TomlValue value_of_word(Type type, const std::string& word);

/// The type of an option or alias. ConfigError for an unknown name, with the nearest known one.
Type type_named(const std::string& name, const std::string& place);

/// Adds those settings of one deck, or of the command line, that were not added before. Notes unknown names,
/// and an option that is given together with its alias.
void add_layer(std::vector<Setting> given, Settings& settings, Errors& errors);

/// Checks the value against the option's type, choices and rule, and sets the field if there is one.
void assign(const Option& option, const Setting& setting, Config& config);

/// The field's value; nothing if there is no field or an optional field is not set.
std::optional<TomlValue> value_of(const Option& option, Config& config);

/// "deck.toml:3:1: training.steps = 0: RULE"
[[noreturn]] void reject(const Setting& setting, const std::string& rule);

}  // namespace coeus::config
