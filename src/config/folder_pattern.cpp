// SPDX-License-Identifier: Apache-2.0
#include "folder_pattern.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "coeus/file/toml.hpp"
#include "value.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

namespace coeus::config {

namespace {

bool is_one_of(char c, std::string_view set) {
    return set.find(c) != std::string_view::npos;
}

bool is_letter_or_digit(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// True for "optimizer.lr"; false for the content of {1} and {}.
bool may_be_option(std::string_view name) {
    return !name.empty() && is_letter_or_digit(name[0]) && name.find('.') != std::string_view::npos &&
           std::ranges::all_of(name, [](char c) { return is_letter_or_digit(c) || is_one_of(c, "._"); });
}

std::string value_in_name(const std::string& name, Config& config) {
    const Option* option = find_option(name);
    if (option == nullptr || option->slot == nullptr || name == "job.dump_folder") {
        std::vector<std::string> known;
        for (const Option& other : options())
            if (other.slot != nullptr && other.name != "job.dump_folder") known.push_back(other.name);
        const std::string near = nearest_name(name, known);
        throw ConfigError("job.dump_folder: {{{}}} is not an option with a value{}", name,
                          near.empty() ? "" : "; did you mean {" + near + "}?");
    }
    const std::optional<TomlValue> value = value_of(*option, config);
    std::string text = value ? toml_text(*value) : "none";
    std::erase_if(text, [](char c) { return is_one_of(c, "\"[]{} "); });
    for (char& c : text)
        if (!is_letter_or_digit(c) && !is_one_of(c, "._-+=")) c = '_';
    return text;
}

}  // namespace

std::string fill_in_options(const std::string& text, Config& config) {
    std::string filled;
    for (size_t at = 0; at < text.size();) {
        const size_t end = text[at] == '{' ? text.find('}', at) : std::string::npos;
        const std::string name = end == std::string::npos ? "" : text.substr(at + 1, end - at - 1);
        if (may_be_option(name)) {
            filled += value_in_name(name, config);
            at = end + 1;
        } else {
            filled += text[at++];
        }
    }
    return filled;
}

}  // namespace coeus::config
