// SPDX-License-Identifier: Apache-2.0
// TOML files as flat lists of "section.key" entries with their places in the file, and single values as TOML
// text. The text is parsed by toml++, which only toml.cpp uses.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace coeus {

/// A table within a list, as TOML text: {pattern = "norm", lr = 0.1}.
struct TomlTable {
    std::string text;
    bool operator==(const TomlTable&) const = default;
};

/// One TOML value: true, 1, 1.5, "text", a list of values, or a table in a list. (Options need no dates.)
struct TomlValue {
    using List = std::vector<TomlValue>;
    std::variant<bool, int64_t, double, std::string, List, TomlTable> value;

    template <class T>
    const T* as() const {
        return std::get_if<T>(&value);
    }
    bool operator==(const TomlValue&) const = default;
};

/// `key = value` of a file; keys of tables are joined: "quantize.linear.float8.emulate".
struct TomlEntry {
    std::string key;
    TomlValue value;
    std::string place;  ///< "inputs/x.toml:12:3": file, line and column of the key
};

/// The entries in the order of the file. ConfigError: the file cannot be read, is not TOML (with line and
/// column), or has a date.
std::vector<TomlEntry> read_toml(const std::filesystem::path& file);
/// The same for a text; `name` stands for the file in messages.
std::vector<TomlEntry> parse_toml(std::string_view text, const std::string& name);

/// The value as TOML text, reals with all their digits: 0.0008, "a \"b\"", [1, 2].
std::string toml_text(const TomlValue& value);

}  // namespace coeus
