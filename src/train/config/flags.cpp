// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/flags.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"

#include <boost/program_options.hpp>

#include <charconv>
#include <cstdio>

namespace coeus {

namespace {

namespace po = boost::program_options;

template <class Number>
Number number_in_range(const std::string& flag, const std::string& text, Number least, Number most) {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || !(value >= least && value <= most))
        throw ConfigError("--{} {}: must be {} from {} to {}", flag, text,
                          std::is_integral_v<Number> ? "a whole number" : "a number", least, most);
    return value;
}

}  // namespace

Flags& Flags::add(const std::string& name, const std::string& value_name, const std::string& default_value,
                  const std::string& meaning) {
    flags_.push_back({name, value_name, default_value, meaning, false});
    return *this;
}

Flags& Flags::add_switch(const std::string& name, const std::string& meaning) {
    flags_.push_back({name, "", "", meaning, true});
    return *this;
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
            if (option.string_key.empty())
                positional_.push_back(option.original_tokens.at(0));
            else
                values_[option.string_key] = option.value.empty() ? "" : option.value.at(0);
        }
    } catch (const po::unknown_option& error) {
        std::string name = error.get_option_name();
        name.erase(0, name.find_first_not_of('-'));
        const std::string near = nearest_name(name, names);
        throw ConfigError("unknown flag --{}{}; usage: {}", name,
                          near.empty() ? "" : "; did you mean --" + near + "?", usage_);
    } catch (const po::error& error) {
        throw ConfigError("{}; usage: {}", error.what(), usage_);
    }
}

void Flags::print_help() const {
    std::printf("usage: %s\n\n", usage_.c_str());
    for (const Flag& flag : flags_) {
        const std::string left = "--" + flag.name + (flag.is_switch ? "" : " " + flag.value_name);
        const std::string right = flag.default_value.empty() ? "" : " (default " + flag.default_value + ")";
        std::printf("  %-24s %s%s\n", left.c_str(), flag.meaning.c_str(), right.c_str());
    }
}

const Flags::Flag& Flags::find(const std::string& name) const {
    for (const Flag& flag : flags_)
        if (flag.name == name) return flag;
    throw LogicError("no flag --" + name);
}

bool Flags::given(const std::string& name) const {
    find(name);
    return values_.contains(name);
}

const std::string& Flags::text(const std::string& name) const {
    const Flag& flag = find(name);
    const auto it = values_.find(name);
    return it == values_.end() ? flag.default_value : it->second;
}

const std::string& Flags::required(const std::string& name) const {
    if (!given(name) || text(name).empty()) throw ConfigError("--{} is missing; usage: {}", name, usage_);
    return text(name);
}

int64_t Flags::integer(const std::string& name, int64_t least, int64_t most) const {
    return number_in_range<int64_t>(name, text(name), least, most);
}

double Flags::number(const std::string& name, double least, double most) const {
    return number_in_range<double>(name, text(name), least, most);
}

}  // namespace coeus
