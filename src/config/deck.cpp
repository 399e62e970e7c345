// SPDX-License-Identifier: Apache-2.0
#include "deck.hpp"

#include "coeus/base/patient_io.hpp"
#include "coeus/base/text.hpp"

#include <algorithm>
#include <filesystem>

namespace coeus::config {

namespace {

namespace fs = std::filesystem;

struct Include {
    std::string file, place;  // the path as written, and where it is written: "my.toml:1:1"
};

std::vector<Include> included(const TomlEntry& entry) {
    const auto refuse = [&]() {
        throw ConfigError("{}: include = {}: must be the path of a deck, or a list of paths", entry.place,
                          toml_text(entry.value));
    };
    TomlValue::List list = {entry.value};
    if (const auto* several = entry.value.as<TomlValue::List>()) list = *several;
    std::vector<Include> includes;
    for (const TomlValue& element : list) {
        const std::string* file = element.as<std::string>();
        if (file == nullptr || file->empty()) refuse();
        includes.push_back({*file, entry.place});
    }
    return includes;
}

constexpr size_t most_levels = 16;  // levels of decks, each included by the one before it
constexpr int most_decks = 256;     // a deck counts each time that it is included

// `chain`: the decks that led to this one, each included by the one before it. `left`: how many more decks
// may be read.
void add(const fs::path& file, Words chain, int& left, Settings& settings, Errors& errors) {
    const auto is_this = [&](const std::string& other) {
        std::error_code ignored;
        return fs::equivalent(file, other, ignored);
    };
    const bool again = std::any_of(chain.begin(), chain.end(), is_this);
    const std::string includer = chain.empty() ? "" : chain.back();
    chain.push_back(file.string());
    if (again) throw ConfigError("{}: a deck cannot include itself: {}", includer, join(chain, " includes "));

    if (chain.size() > most_levels)
        throw ConfigError("{}: includes {}: more than {} levels of decks, each included by the one before it",
                          includer, file.string(), most_levels);
    if (--left < 0)
        throw ConfigError(
            "{}: includes {}: more than {} decks in all; a deck counts each time that it is included",
            includer, file.string(), most_decks);
    std::vector<Setting> given;
    std::vector<Include> includes;
    for (TomlEntry& entry : read_toml(file)) {
        if (entry.key == "include")
            includes = included(entry);
        else if (entry.key == "job.config_file")
            throw ConfigError(
                "{}: job.config_file = {}: can only be set on the command line; in a deck, use include for "
                "other decks",
                entry.place, toml_text(entry.value));
        else
            given.push_back({entry.key, entry.value, toml_text(entry.value), entry.place});
    }
    add_layer(std::move(given), settings, errors);
    std::reverse(includes.begin(), includes.end());
    for (const Include& include : includes) {
        const fs::path path = (file.parent_path() / include.file).lexically_normal();
        if (!exists_patiently(path))
            throw ConfigError(
                "{}: include = \"{}\": there is no file {}; the path must be relative to this deck",
                include.place, include.file, path.string());
        add(path, chain, left, settings, errors);
    }
}

}  // namespace

void add_deck(const std::string& file, Settings& settings, Errors& errors) {
    int left = most_decks;
    add(file, {}, left, settings, errors);
}

}  // namespace coeus::config
