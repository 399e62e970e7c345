// SPDX-License-Identifier: Apache-2.0
#include "check.hpp"
#include "coeus/base/error.hpp"
#include "coeus/file/toml.hpp"
#include "deck.hpp"

namespace coeus {

using namespace config;

Config with_settings(const Config& config, const DeckRules& rules, const std::vector<std::string>& settings) {
    Config changed = config;
    for (const std::string& line : settings)
        for (TomlEntry& entry : parse_toml(line, "a changed setting")) {
            const Option* option = find_option(entry.key);
            require(option != nullptr && option->slot != nullptr, "a changed setting that is not an option");
            assign(*option, {entry.key, entry.value, toml_text(entry.value), entry.place}, changed);
        }
    check(changed, rules);
    return changed;
}

}  // namespace coeus
