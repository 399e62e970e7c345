// SPDX-License-Identifier: Apache-2.0
#include "coeus/config/command_flags.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/text.hpp"

#include <boost/program_options.hpp>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace coeus {

namespace {

namespace po = boost::program_options;

template <class Number>
bool read_number(const std::string& text, Number& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc{} && end == text.data() + text.size();
}

// "--x=1" -> "x"
std::string bare(std::string name) {
    name.erase(0, name.find_first_not_of('-'));
    return name.substr(0, name.find('='));
}

// Names of flags in other programs; a command has the flag on the right, or not.
constexpr std::pair<const char*, const char*> foreign_flags[] = {
    {"max_new_tokens", "length"}, {"max_tokens", "length"},  {"num_tokens", "length"},
    {"n_predict", "length"},      {"model", "checkpoint"},   {"ckpt", "checkpoint"},
    {"temp", "temperature"},      {"stop_sequence", "stop"}, {"out", "output"},
    {"output_dir", "output"},     {"batch_size", "batch"},   {"workers", "threads"},
    {"num_workers", "threads"},   {"overwrite", "force"}};

std::string nearest_flag(const std::string& name, const std::vector<std::string>& names) {
    std::string word = name;
    std::replace(word.begin(), word.end(), '-', '_');
    for (const auto& [foreign, own] : foreign_flags)
        if (word == foreign && std::find(names.begin(), names.end(), own) != names.end()) return own;
    return nearest_name(name, names);
}

namespace fs = std::filesystem;

// Without links; the last parts need not exist. "" if the system cannot tell.
fs::path real_path(const std::string& path) {
    std::error_code unseen;
    return fs::weakly_canonical(fs::absolute(path), unseen);
}

bool is_same_file(const std::string& one, const std::string& other) {
    std::error_code unseen;
    const fs::path real = real_path(one);
    return fs::equivalent(one, other, unseen) || (!real.empty() && real == real_path(other));
}

bool is_inside(const std::string& path, const std::string& folder) {
    const fs::path inner = real_path(path), outer = real_path(folder);
    return !outer.empty() && std::ranges::mismatch(outer, inner).in1 == outer.end();
}

}  // namespace

Flags& Flags::add(const std::string& name, const std::string& value_name, const std::string& default_value,
                  const std::string& meaning) {
    flags_.push_back({.name = name,
                      .value_name = value_name,
                      .default_value = default_value,
                      .meaning = meaning,
                      .value = default_value});
    return *this;
}

Flags& Flags::add_list(const std::string& name, const std::string& value_name, const std::string& meaning) {
    flags_.push_back({.name = name, .value_name = value_name, .meaning = meaning, .is_list = true});
    return *this;
}

Flags& Flags::add_switch(const std::string& name, const std::string& meaning) {
    flags_.push_back({.name = name, .meaning = meaning, .is_switch = true});
    return *this;
}

Flags& Flags::add_force() {
    return add_switch("force", "replace existing files");
}

void Flags::require_replaceable(const std::string& path) const {
    std::error_code unseen;
    if (given("force")) return;
    if (is_file_patiently(path) || is_folder_patiently(path))
        throw ConfigError("{} already exists; --force replaces it", path);
    // the link itself would be replaced, or a file made where it points
    if (fs::is_symlink(path, unseen) && !exists_patiently(path))
        throw ConfigError("{} already exists: it is a link that leads nowhere; --force replaces it", path);
}

void Flags::require_different_files(const std::string& flag, const std::string& other) const {
    if (!given(flag) || !given(other)) return;
    if (is_same_file(text(flag), text(other)))
        throw ConfigError("coeus {}: --{} and --{} name the same file, {}; give them two names", command_,
                          flag, other, text(other));
}

void Flags::require_not_read(const std::string& name, const std::string& output,
                             const std::vector<std::string>& inputs) const {
    if (!is_file_patiently(output) && !is_folder_patiently(output)) return;
    for (const std::string& input : inputs)
        if (!input.empty() && (is_same_file(output, input) || is_inside(input, output)))
            throw ConfigError("coeus {}: {} {} would replace {}, which the command reads; give another {}",
                              command_, name, output, input, name);
}

void Flags::parse(const std::vector<std::string>& arguments) {
    po::options_description table;
    std::vector<std::string> names;
    for (const Flag& flag : flags_) {
        names.push_back(flag.name);
        if (flag.is_switch)
            table.add_options()(flag.name.c_str(), "");
        else
            table.add_options()(flag.name.c_str(), po::value<std::string>());
    }
    using style = po::command_line_style::style_t;
    try {
        const auto parsed =
            po::command_line_parser(arguments)
                .options(table)
                .style(style::allow_long | style::long_allow_adjacent | style::long_allow_next)
                .run();
        for (const po::option& option : parsed.options) {
            if (option.string_key.empty()) {
                words_.push_back(option.original_tokens.at(0));
                continue;
            }
            for (Flag& flag : flags_) {
                if (flag.name != option.string_key) continue;
                if (flag.given && !flag.is_list)
                    throw ConfigError("coeus {}: --{} is given twice", command_, flag.name);
                flag.given = true;
                if (option.value.empty()) continue;
                flag.value = option.value.at(0);
                if (flag.is_list) flag.values.push_back(flag.value);
            }
        }
    } catch (const po::unknown_option& error) {
        const std::string name = bare(error.get_option_name()), near = nearest_flag(name, names);
        throw ConfigError("coeus {}: unknown option --{}{}; options: --{}", command_, name,
                          near.empty() ? "" : "; did you mean --" + near + "?", join(names, ", --"));
    } catch (const po::invalid_command_line_syntax& error) {
        throw ConfigError("coeus {}: --{} {}", command_, bare(error.get_option_name()),
                          error.kind() == po::invalid_command_line_syntax::extra_parameter ? "takes no value"
                                                                                           : "needs a value");
    } catch (const po::error& error) {
        throw ConfigError("coeus {}: {}", command_, error.what());
    }
    if (words_name_.empty() && !words_.empty())
        throw ConfigError("coeus {}: unexpected argument '{}'; see coeus help {}", command_, words_[0],
                          command_);
    if (!words_name_.empty() && words_.empty())
        throw ConfigError("coeus {} needs {}; see coeus help {}", command_, words_name_, command_);
    if (std::ranges::find(words_, "") != words_.end())
        throw ConfigError("coeus {}: an argument is empty; it needs {}", command_, words_name_);
}

void Flags::print_help() const {
    constexpr size_t columns = 100, column = 23;  // where the meanings of flags begin
    std::printf("usage: coeus %s %s\n\n", command_.c_str(), usage_.c_str());
    for (size_t begin = 0; begin < meaning_.size();) {
        const size_t end = std::min(meaning_.find('\n', begin), meaning_.size());
        std::puts(wrapped(std::string_view(meaning_).substr(begin, end - begin), columns).c_str());
        begin = end + 1;
    }
    std::puts("");
    for (const Flag& flag : flags_) {
        const std::string left = "--" + flag.name + (flag.is_switch ? "" : " " + flag.value_name);
        const std::string right = flag.default_value.empty() ? "" : " (default " + flag.default_value + ")";
        const std::string indent(column, ' ');
        if (left.size() + 3 > column) std::printf("  %s\n", left.c_str());
        std::string text = wrapped(indent + flag.meaning + right, columns, indent);
        if (left.size() + 3 <= column) text.replace(2, left.size(), left);
        std::puts(text.c_str());
    }
}

const Flags::Flag& Flags::find(const std::string& name) const {
    for (const Flag& flag : flags_)
        if (flag.name == name) return flag;
    throw LogicError("no flag --" + name);
}

const std::string& Flags::required(const std::string& name) const {
    const Flag& flag = find(name);
    if (flag.value.empty())
        throw ConfigError("coeus {} needs --{}; see coeus help {}", command_, name, command_);
    return flag.value;
}

const std::string& Flags::choice(const std::string& name, const std::vector<std::string>& choices) const {
    const std::string& value = text(name);
    if (std::find(choices.begin(), choices.end(), value) != choices.end()) return value;
    // the nearest name is "cpu", the opposite of what is meant
    const bool means_gpu =
        value == "gpu" && std::find(choices.begin(), choices.end(), "cuda") != choices.end();
    const std::string near = means_gpu ? "cuda" : nearest_name(value, choices);
    throw ConfigError("coeus {}: --{} must be one of {}, but is \"{}\"{}", command_, name,
                      join(choices, ", "), value, near.empty() ? "" : "; did you mean " + near + "?");
}

int64_t Flags::integer(const std::string& name, int64_t least, int64_t most) const {
    int64_t value = 0;
    if (read_number(text(name), value) && value >= least && value <= most) return value;
    throw ConfigError("coeus {}: --{} must be a whole number of at least {}{}, but is \"{}\"", command_, name,
                      least, most == INT64_MAX ? "" : fmt::format(" and at most {}", most), text(name));
}

double Flags::number(const std::string& name, double least, double most) const {
    double value = 0;
    if (read_number(text(name), value) && value >= least && value <= most) return value;
    throw ConfigError("coeus {}: --{} must be a number from {} to {}, but is \"{}\"", command_, name, least,
                      most, text(name));
}

}  // namespace coeus
