// SPDX-License-Identifier: Apache-2.0
// Flags of the small commands (tokenizer, tokenize, generate, info): --name value or --name=value, and the
// words that stand without a name. One list makes parsing, help and suggestions. Boost.Program_options
// parses; it stays in src/config.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace coeus {

class Flags {
public:
    struct Flag {
        std::string name, value_name = {}, default_value = {}, meaning;
        bool is_switch = false, is_list = false;
        std::string value = {};
        std::vector<std::string> values = {};  // of a list
        bool given = false;
    };
    /// `usage`: what follows "coeus COMMAND"; `words`: what stands without a name ("a text file or folder";
    /// "": nothing may); `meaning`: some lines on what the command does.
    Flags(std::string command, std::string usage, std::string words, std::string meaning)
        : command_(std::move(command)),
          usage_(std::move(usage)),
          words_name_(std::move(words)),
          meaning_(std::move(meaning)) {}

    /// A flag with a value; without a default ("") it may be absent.
    Flags& add(const std::string& name, const std::string& value_name, const std::string& default_value,
               const std::string& meaning);
    /// A flag with a value that may be given any number of times.
    Flags& add_list(const std::string& name, const std::string& value_name, const std::string& meaning);
    /// A flag without a value.
    Flags& add_switch(const std::string& name, const std::string& meaning);

    /// --force, of a command that writes files: see require_replaceable().
    Flags& add_force();

    /// ConfigError: an unknown flag (with the nearest known one), one given twice, a value missing, words
    /// where none are wanted or none where some are.
    void parse(const std::vector<std::string>& arguments);
    /// Usage, meaning and a line for each flag, to stdout.
    void print_help() const;
    const std::string& usage() const { return usage_; }
    const std::string& meaning() const { return meaning_; }
    const std::vector<Flag>& all() const& { return flags_; }
    const std::vector<Flag>& all() const&& = delete;

    const std::vector<std::string>& words() const { return words_; }
    bool given(const std::string& name) const { return find(name).given; }
    /// The value given, or the default.
    const std::string& text(const std::string& name) const { return find(name).value; }
    /// All values of a flag that may be given several times.
    const std::vector<std::string>& texts(const std::string& name) const { return find(name).values; }
    /// ConfigError naming the flag where it was not given.
    const std::string& required(const std::string& name) const;
    /// ConfigError naming flag, value and the nearest choice where it is none of these.
    const std::string& choice(const std::string& name, const std::vector<std::string>& choices) const;
    /// ConfigError naming flag, value and rule where it is no number or outside [least, most].
    int64_t integer(const std::string& name, int64_t least, int64_t most = INT64_MAX) const;
    double number(const std::string& name, double least, double most) const;

    /// ConfigError where a file or folder of that name is there, unless --force was given. Devices and pipes
    /// may be written to.
    void require_replaceable(const std::string& path) const;

private:
    const Flag& find(const std::string& name) const;
    std::string command_, usage_, words_name_, meaning_;
    std::vector<Flag> flags_;
    std::vector<std::string> words_;
};

}  // namespace coeus
