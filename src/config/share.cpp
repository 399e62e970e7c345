// SPDX-License-Identifier: Apache-2.0
// Broadcasts the command line that rank 0 read: the effective deck as text, and the rest. So thousands of
// ranks do not open the same few files.
#include "coeus/base/patient_io.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/file/toml.hpp"
#include "value.hpp"

#include <fmt/format.h>

#include <filesystem>

namespace coeus {

namespace {

using namespace config;

// "" if the file cannot be read; the error is reported when it is needed.
std::string read_if_there(const std::string& path) {
    std::error_code ignored;
    if (status_patiently(path, ignored).type() != std::filesystem::file_type::regular) return "";
    return text_patiently(path, ignored);
}

Words packed(const CommandLine& line) {
    Words texts = {deck_text(line.config), line.config.job.config_file,
                   line.config.parallelism.schedule_table, line.dry_run ? "dry" : "",
                   std::to_string(line.ranks)};
    texts.insert(texts.end(), line.notices.begin(), line.notices.end());
    return texts;
}

CommandLine unpacked(const Words& texts) {
    CommandLine line;
    std::vector<Setting> given;
    for (TomlEntry& entry : parse_toml(texts[0], "the effective deck"))
        given.push_back({entry.key, entry.value, toml_text(entry.value), entry.place});
    Settings settings;
    Errors errors;
    add_layer(std::move(given), settings, errors);
    errors.require_none();
    for (const Option& option : options())
        if (const auto setting = settings.find(option.name); setting != settings.end())
            assign(option, setting->second, line.config);
    line.config.job.config_file = texts[1];
    line.config.parallelism.schedule_table = texts[2];
    line.dry_run = !texts[3].empty();
    line.ranks = std::stoi(texts[4]);
    line.notices.assign(texts.begin() + 5, texts.end());
    return line;
}

}  // namespace

CommandLine parse_by_rules(const std::vector<std::string>& arguments, const DeckRules& rules,
                           const Communicator& ranks) {
    CommandLine line;
    on_first_rank(ranks, [&] {
        if (arguments.empty())
            throw ConfigError(
                "no deck is given; usage: coeus train DECK [--section.option=value ...]; see coeus help "
                "train");
        line = parse_by_rules(arguments, rules, ranks.size());
        Config::Parallelism& p = line.config.parallelism;
        p.schedule_table = read_if_there(p.pipeline_parallel_schedule_csv);
    });
    const Words texts = broadcast_texts(ranks, ranks.rank() == 0 ? packed(line) : Words{});
    together(ranks, [&] {
        if (ranks.rank() > 0) line = unpacked(texts);
    });
    return line;
}

}  // namespace coeus
