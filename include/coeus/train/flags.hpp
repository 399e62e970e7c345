// SPDX-License-Identifier: Apache-2.0
// Flags of the small commands (tokenizer, tokenize, generate, info): --name value or --name=value, and what
// stands without a name. Boost.Program_options parses them; it stays in src/train/config.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace coeus {

class Flags {
public:
    /// `usage`: "coeus tokenizer CORPUS... --output FOLDER [...]".
    explicit Flags(std::string usage) : usage_(std::move(usage)) {}

    /// A flag with a value; without a default ("") it may be absent.
    Flags& add(const std::string& name, const std::string& value_name, const std::string& default_value,
               const std::string& meaning);
    /// A flag without a value.
    Flags& add_switch(const std::string& name, const std::string& meaning);

    /// ConfigError: an unknown flag (with the nearest known one), a value missing.
    void parse(const std::vector<std::string>& arguments);
    /// Usage and one line a flag, to stdout.
    void print_help() const;

    const std::vector<std::string>& positional() const { return positional_; }
    bool given(const std::string& name) const;
    const std::string& text(const std::string& name) const;
    /// ConfigError naming the flag where it was not given.
    const std::string& required(const std::string& name) const;
    /// ConfigError naming flag, value and range where it is no number or outside [least, most].
    int64_t integer(const std::string& name, int64_t least, int64_t most) const;
    double number(const std::string& name, double least, double most) const;

private:
    struct Flag {
        std::string name, value_name, default_value, meaning;
        bool is_switch;
    };
    const Flag& find(const std::string& name) const;
    std::string usage_;
    std::vector<Flag> flags_;
    std::map<std::string, std::string> values_;
    std::vector<std::string> positional_;
};

}  // namespace coeus
