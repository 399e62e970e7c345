// SPDX-License-Identifier: Apache-2.0
// Flags of all commands but `coeus train`: --name value or --name=value, and positional arguments. One list
// drives parsing, help and suggestions. Boost.Program_options parses; it is used only in src/config.
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
    /// `usage`: the text after "coeus COMMAND". `words`: what the positional arguments are ("a text file or
    /// folder"; "" if the command takes none). `meaning`: a few lines about what the command does.
    Flags(std::string command, std::string usage, std::string words, std::string meaning)
        : command_(std::move(command)),
          usage_(std::move(usage)),
          words_name_(std::move(words)),
          meaning_(std::move(meaning)) {}

    /// A flag with a value. It is optional; "" means that it has no default.
    Flags& add(const std::string& name, const std::string& value_name, const std::string& default_value,
               const std::string& meaning);
    /// A flag with a value that may be given any number of times.
    Flags& add_list(const std::string& name, const std::string& value_name, const std::string& meaning);
    /// A flag without a value.
    Flags& add_switch(const std::string& name, const std::string& meaning);

    /// --force, for a command that writes files: see require_replaceable().
    Flags& add_force();

    /// ConfigError: an unknown flag (with the nearest known one), a flag given twice, a missing value,
    /// positional arguments for a command that takes none, or none for a command that needs them.
    void parse(const std::vector<std::string>& arguments);
    /// Prints usage, meaning and all flags to stdout.
    void print_help() const;
    const std::string& usage() const { return usage_; }
    const std::string& meaning() const { return meaning_; }
    const std::vector<Flag>& all() const& { return flags_; }
    const std::vector<Flag>& all() const&& = delete;

    const std::vector<std::string>& words() const { return words_; }
    bool given(const std::string& name) const { return find(name).given; }
    /// The value given, or the default.
    const std::string& text(const std::string& name) const { return find(name).value; }
    /// All values of a flag that may be repeated.
    const std::vector<std::string>& texts(const std::string& name) const { return find(name).values; }
    /// ConfigError naming the flag if it was not given.
    const std::string& required(const std::string& name) const;
    /// ConfigError naming flag, value and the nearest choice if the value is not one of `choices`.
    const std::string& choice(const std::string& name, const std::vector<std::string>& choices) const;
    /// ConfigError naming flag, value and rule if the value is not a number or outside [least, most].
    int64_t integer(const std::string& name, int64_t least, int64_t most = INT64_MAX) const;
    double number(const std::string& name, double least, double most) const;

    /// ConfigError if a file or folder of that name exists and --force was not given. Devices and pipes may
    /// always be written to.
    void require_replaceable(const std::string& path) const;
    /// ConfigError if two flags that are given name the same file, which may not exist yet.
    void require_different_files(const std::string& flag, const std::string& other) const;
    /// ConfigError if a file or folder to write, `output`, is one of those that the command reads, or
    /// contains one: --force would destroy it. `name`: of the output, as in "--output".
    void require_not_read(const std::string& name, const std::string& output,
                          const std::vector<std::string>& inputs) const;

private:
    const Flag& find(const std::string& name) const;
    std::string command_, usage_, words_name_, meaning_;
    std::vector<Flag> flags_;
    std::vector<std::string> words_;
};

}  // namespace coeus
