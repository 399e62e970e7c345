// SPDX-License-Identifier: Apache-2.0
// The option table as text: for the terminal, for doc/decks.md, and a config as a deck.
#include "coeus/base/text.hpp"
#include "value.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace coeus {

namespace {

using namespace config;

const char* type_name(Type type) {
    switch (type) {
        case Type::boolean: return "boolean";
        case Type::integer: return "integer";
        case Type::real: return "number";
        case Type::text: return "text";
        case Type::integers: return "list of integers";
        case Type::reals: return "list of numbers";
        case Type::words: return "list of texts";
        case Type::word_lists: return "list of lists of texts";
        case Type::tables: return "list of tables";
    }
    return "";
}

// As in a deck; "" where there is none, or where it follows from other options.
std::string default_of(const Option& option) {
    if (option.idle) return toml_text(*option.idle);
    Config plain;
    const auto value = value_of(option, plain);
    return value && option.default_note.empty() ? toml_text(*value) : "";
}

std::string choices_of(const Option& option) {
    Words parts;
    for (const std::string& choice : option.choices) {
        const auto in = [&](const Words& some) {
            return std::find(some.begin(), some.end(), choice) != some.end();
        };
        const bool built = option.built.empty() || in(option.built);
        parts.push_back(choice + (!built ? " (not built yet)" : in(option.refused) ? " (refused)" : ""));
    }
    return join(parts, ", ");
}

// Meaning, rule, choices and status in one line.
std::string explanation(const Option& option) {
    std::string text = option.meaning;
    if (option.rule != nullptr) text += fmt::format("; {}", option.rule->text);
    if (!option.choices.empty()) text += fmt::format("; one of {}", choices_of(option));
    switch (option.status) {
        case Status::works: return text;
        case Status::dormant: return text + fmt::format(" [used with {}; not built yet]", option.why);
        case Status::not_built:
            return text + (option.slot != nullptr ? " [not built yet]" : " [refused: not built yet]");
        case Status::no_effect: return text + fmt::format(" [no effect: {}]", option.why);
        case Status::refused: return text + fmt::format(" [refused: {}]", option.why);
    }
    return text;
}

std::string last_part(const Option& option) {
    return option.name.substr(option.name.rfind('.') + 1);
}

std::string escaped(std::string text) {
    for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
    return text;
}

}  // namespace

std::vector<OptionName> option_names() {
    std::vector<OptionName> names;
    for (const Option& option : options())
        names.push_back({option.name, option.type == Type::boolean,
                         option.built.empty() ? option.choices : option.built});
    return names;
}

std::string options_help() {
    std::string text =
        "Options of a deck, a TOML file with [section] and option = value; on the command line\n"
        "  --section.option=value   --section.option value   --section.switch   --section.no_switch\n"
        "Command line before deck before included deck before default.\n";
    std::string section;
    for (const Option& option : options()) {
        if (option.section() != section) text += fmt::format("\n[{}]\n", section = option.section());
        const std::string value = default_of(option);
        const std::string given = "--" + option.name + (value.empty() ? "" : "=" + value);
        const std::string usual = option.default_note.empty() ? "" : "; default: " + option.default_note;
        text += fmt::format("  {:<52} {}{}\n", given, explanation(option), usual);
    }
    return text;
}

std::string options_markdown() {
    std::string text =
        "# Decks\n\n"
        "<!-- Made by `coeus help options --markdown > doc/decks.md`; a test sees that it is fresh. -->\n\n"
        "A run is described by a deck, a TOML file:\n\n"
        "```toml\n"
        "include = \"base/llama3_8b.toml\"   # relative to this deck; a list works too\n\n"
        "[training]\n"
        "dataset_path = \"data/tokens.h5\"\n"
        "steps = 1_000\n"
        "```\n\n"
        "`coeus train deck.toml --training.steps=2000 --checkpoint.enable` starts it. The command line goes "
        "before the deck, the deck before what it includes, that before the defaults. On the command line an "
        "option is `--section.option=value` or `--section.option value`; a boolean also `--section.option` "
        "and `--section.no_option`; a list `a,b,c`; and of an option given twice the last counts. Names are "
        "written out. Where a value may be absent, `none` takes it away again.\n\n"
        "Paths are relative to the working directory, but for `include`, and for what a run writes, which "
        "lies in `job.dump_folder` unless its path is absolute. Decks include each other over 16 levels at "
        "most, and 256 of them in all. The effective deck of a run is written to "
        "`deck.toml` in `job.dump_folder` and is itself a deck. `--dry_run` checks a deck and runs nothing; "
        "with `--ranks N` for a mesh of N ranks.\n\n"
        "Sections and options are those of torchtitan's TOML decks. *Not built yet* marks what is refused in "
        "a real run unless it has its default, *refused* what always is, an option or single words of one; "
        "*no effect* what is checked and accepted, with one notice, and has no meaning here.\n";
    std::string section = "-";
    for (const Option& option : options()) {
        if (option.section() != section) {
            section = option.section();
            text += fmt::format("\n## {}\n\n| option | type | default | meaning |\n|---|---|---|---|\n",
                                section.empty() ? "Without a section" : "[" + section + "]");
        }
        const std::string value = default_of(option);
        text += fmt::format("| `{}` | {} | {} | {} |\n", last_part(option), type_name(option.type),
                            value.empty() ? option.default_note : "`" + value + "`",
                            escaped(explanation(option)));
    }
    text +=
        "\n## Other names\n\nShort names for the command line, torchtitan's names of 2024, and those of "
        "2026, where it is configured in Python:\n\n| name | here |\n|---|---|\n";
    for (const Alias& alias : aliases()) {
        const char* note = alias.kind == Alias::Kind::inverted ? ", with the opposite meaning" : "";
        if (alias.kind == Alias::Kind::converter)
            text += fmt::format("| `{}` | `{}` with `{}` |\n", alias.old_name, alias.name, float8_converter);
        else if (alias.kind == Alias::Kind::retired)
            text += fmt::format("| `{}` | refused: {} |\n", alias.old_name, alias.name);
        else
            text += fmt::format("| `{}` | `{}`{} |\n", alias.old_name, alias.name, note);
    }
    return text;
}

std::string deck_text(const Config& config, const std::map<std::string, std::string>& origins) {
    Config copy = config, plain;
    std::string text = "# The effective deck";
    text += config.job.config_file.empty() ? ".\n"
                                           : fmt::format(" of {}.\n", toml_text({config.job.config_file}));
    std::string section;
    for (const Option& option : options()) {
        const auto value = value_of(option, copy);
        if (!value || option.name == "job.config_file") continue;
        // of what is not built yet only what was asked for
        if (option.status != Status::works && value == value_of(option, plain)) continue;
        if (option.section() != section) text += fmt::format("\n[{}]\n", section = option.section());
        const auto origin = origins.find(option.name);
        text += fmt::format("{} = {}{}\n", last_part(option), toml_text(*value),
                            origin == origins.end() ? "" : "  # " + printable(origin->second));
    }
    return text;
}

}  // namespace coeus
