// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"

#include <algorithm>
#include <charconv>

namespace coeus::apps {

Options::Options(const char* command, const Arguments& arguments, const std::vector<std::string>& names)
    : command_(command) {
    for (size_t i = 0; i < arguments.size(); ++i) {
        const std::string& word = arguments[i];
        if (!word.starts_with("--")) {
            words_.push_back(word);
            continue;
        }
        const size_t equals = word.find('=');
        const std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
        if (std::find(names.begin(), names.end(), name) == names.end()) {
            const std::string near = nearest_name(name, names);
            throw ConfigError("coeus {}: unknown option --{}{}; options: --{}", command, name,
                              near.empty() ? "" : ", did you mean --" + near + "?", join(names, ", --"));
        }
        if (equals == std::string::npos && i + 1 == arguments.size())
            throw ConfigError("coeus {}: --{} needs a value", command, name);
        const std::string value = equals == std::string::npos ? arguments[++i] : word.substr(equals + 1);
        if (!values_.emplace(name, value).second)
            throw ConfigError("coeus {}: --{} is given twice", command, name);
    }
}

const Arguments& Options::words(const char* what) const {
    if (words_.empty()) throw ConfigError("coeus {} needs {}; see coeus help {}", command_, what, command_);
    return words_;
}

std::optional<std::string> Options::find(const std::string& name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
}

std::string Options::text(const std::string& name) const {
    const auto value = find(name);
    if (!value || value->empty())
        throw ConfigError("coeus {} needs --{}; see coeus help {}", command_, name, command_);
    return *value;
}

int64_t Options::integer(const std::string& name, int64_t otherwise, int64_t least) const {
    const auto value = find(name);
    if (!value) return otherwise;
    int64_t number = 0;
    const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), number);
    if (error != std::errc() || end != value->data() + value->size() || number < least)
        throw ConfigError("coeus {}: --{} must be a whole number of at least {}, is \"{}\"", command_, name,
                          least, *value);
    return number;
}

}  // namespace coeus::apps
