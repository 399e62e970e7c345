// SPDX-License-Identifier: Apache-2.0
// The option table as text: for the terminal, for doc/decks.md, and a config as a deck.
#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "suggestions.hpp"
#include "value.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>

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

// As in a deck; "" if there is none, or if it follows from other options.
std::string default_of(const Option& option) {
    if (option.idle) return toml_text(*option.idle);
    Config plain;
    const auto value = value_of(option, plain);
    return value && option.default_note.empty() ? toml_text(*value) : "";
}

// Code is between backticks.
std::string choices_of(const Option& option) {
    Words parts;
    for (const std::string& choice : option.choices) {
        const auto in = [&](const Words& some) {
            return std::find(some.begin(), some.end(), choice) != some.end();
        };
        const bool built = option.built.empty() || in(option.built);
        const char* mark = !built ? " (not implemented yet)" : in(option.refused) ? " (refused)" : "";
        parts.push_back(fmt::format("`{}`{}", choice, mark));
    }
    const char* start = parts.size() == 1 ? "Only " : option.type == Type::words ? "Any of " : "One of ";
    return start + join(parts, ", ") + ".";
}

bool has_effect(const Option& option) {
    return option.status != Status::no_effect && option.status != Status::dormant;
}

// Why an option has no effect or is refused, in Markdown.
std::string reason_of(const Option& option) {
    if (option.status != Status::dormant) return option.why;
    const char* const mark = option.why.find('.') == std::string::npos ? "" : "`";
    return fmt::format("it needs {1}{0}{1} (not implemented yet)", option.why, mark);
}

std::string status_of(const Option& option) {
    if (option.status == Status::works) return "";
    const char* const status = has_effect(option)                 ? "Refused"
                               : option.status == Status::dormant ? "No effect yet"
                                                                  : "No effect";
    return fmt::format(" *{}*: {}.", status, reason_of(option));
}

// Meaning, rule, choices and default (unless it is a value) as sentences, in Markdown.
std::string description(const Option& option) {
    std::string text = option.meaning + ".";
    const bool is_list = option.type == Type::integers || option.type == Type::reals;
    if (option.rule != nullptr)
        text += fmt::format(" {} must be {}.", is_list ? "Each" : "It", option.rule->text);
    if (!option.choices.empty()) text += " " + choices_of(option);
    if (!option.default_note.empty()) text += fmt::format(" Default: {}.", option.default_note);
    return text;
}

std::string explanation(const Option& option) {
    return description(option) + status_of(option);
}

// Markdown in lines for a terminal: wrapped first, so that code is not broken.
std::string terminal_text(std::string text, size_t columns, const std::string& indent) {
    for (const std::string_view mark : {"*No effect yet*", "*No effect*", "*Refused*"})
        if (const size_t at = text.find(mark); at != std::string::npos)
            text.replace(at, mark.size(), mark.substr(1, mark.size() - 2));
    text = wrapped(text, columns, indent);
    std::erase(text, '`');
    return text;
}

// A link to a heading of the same document, by the rules of GitHub.
std::string link_to(const std::string& heading) {
    std::string text, anchor;
    for (const char c : heading) {
        if (c != '[' && c != ']') text += c;
        if (std::isalnum(uint8_t(c)) || c == '_' || c == ' ')
            anchor += c == ' ' ? '-' : char(std::tolower(uint8_t(c)));
    }
    return fmt::format("[{}](#{})", text, anchor);
}

std::string last_part(const Option& option) {
    return option.name.substr(option.name.rfind('.') + 1);
}

// What an older or shorter name means, in Markdown.
std::string meaning_of(const Alias& alias) {
    switch (alias.kind) {
        case Alias::Kind::same: return fmt::format("`{}`", alias.name);
        case Alias::Kind::inverted: return fmt::format("`{}`, with the opposite meaning", alias.name);
        case Alias::Kind::converter: return fmt::format("`{}` with `{}`", alias.name, float8_converter);
        case Alias::Kind::retired: return "refused; " + alias.name;
    }
    return "";
}

// Which options `coeus help options WORD...` shows.
class Filter {
public:
    explicit Filter(const Words& words) {
        for (std::string word : words) {
            std::erase_if(word, [](char c) { return c == '[' || c == ']'; });
            for (char& c : word) c = char(std::tolower(uint8_t(c)));
            const auto is_in = [&](const std::string& name) { return name.find(word) != std::string::npos; };
            if (std::ranges::any_of(options(), is_in, &Option::name))
                in_options_.push_back(word);
            else if (std::ranges::any_of(aliases(), is_in, &Alias::old_name))
                in_aliases_.push_back(word);
            else
                throw ConfigError("coeus help options: {}", unknown_option(word));
        }
    }
    bool shows_all() const { return in_options_.empty() && in_aliases_.empty(); }
    bool shows(const Option& option) const { return shows_all() || is_one_in(in_options_, option.name); }
    bool shows(const Alias& alias) const { return is_one_in(in_aliases_, alias.old_name); }

private:
    static bool is_one_in(const Words& words, const std::string& name) {
        return std::ranges::any_of(
            words, [&](const std::string& word) { return name.find(word) != std::string::npos; });
    }
    Words in_options_, in_aliases_;
};

// The part of doc/decks.md before the options.
constexpr const char* decks_introduction = R"(# Decks

<!-- Generated by `coeus help options --markdown > doc/decks.md`; a test checks that it is up to date. -->

A deck is a TOML file that describes a run:

```toml
include = "base/llama3_8b.toml"   # relative to this deck; a list works too

[training]
dataset_path = "data/tokens.h5"
steps = 1_000
```

`coeus train deck.toml --training.steps=2000 --checkpoint.enable` starts the run.

Precedence, highest first: command line, deck, included decks, defaults. If a deck includes several decks, a later one
takes precedence over an earlier one.

On the command line:

- An option is written `--section.option=value` or `--section.option value`.
- A boolean can also be written `--section.option` or `--section.no_option`.
- A list is written `a,b,c`, or as in a deck, `'["a", "b"]'`.
- If an option is given twice, the last one wins.
- Names cannot be abbreviated.

The value `none` resets an option whose default is not a fixed value, such as `model.dim`. This also works in a deck.

Paths are relative to the working directory, with two exceptions:

- Paths in `include` are relative to the deck.
- Files that a run writes go into `job.dump_folder` unless their path is absolute.

Decks can include each other over at most 16 levels, and at most 256 decks in all.

A run writes its effective deck, with the values of all options that are implemented, to `deck.toml` in
`job.dump_folder`. That file can be used as a deck.

`--dry_run` checks a deck and trains nothing. With `--ranks N`, it checks the deck for N ranks.

`coeus help options WORD` prints the options whose names contain the word.

Sections and options are those of torchtitan's TOML decks. Those that have no effect here are in
[a table at the end](#options-without-effect). A real run always refuses an option, or a single choice, that is marked
as *refused*.

)";

constexpr const char* without_effect_introduction = R"(
## Options without effect

These options are checked and accepted, with one notice. Those of a feature that is not implemented yet have no effect
until it is. The others have no meaning in Coeus.

| option | type | meaning | without effect, since |
|---|---|---|---|
)";

constexpr const char* other_names_introduction = R"(
## Other names

Short names for the command line, names in torchtitan of 2024, and names in torchtitan of 2026, which is configured in
Python:

)";

constexpr size_t terminal_columns = 100, document_columns = 120;

}  // namespace

std::vector<OptionName> option_names(const DeckRules& rules) {
    std::vector<OptionName> names;
    for (const Option& option : options_with(rules))
        names.push_back({option.name, option.type == Type::boolean,
                         option.built.empty() ? option.choices : option.built});
    return names;
}

std::string options_help(const DeckRules& rules, const Words& words) {
    const Filter filter(words);
    std::string text;
    if (filter.shows_all())
        text =
            "A deck is a TOML file with [section] and option = value. On the command line, an option is\n"
            "  --section.option=value   --section.option value   --section.switch   --section.no_switch\n"
            "Precedence, highest first: command line, deck, included decks, defaults.\n"
            "`coeus help options WORD` shows only the options whose names contain the word.\n\n";
    std::string section;
    for (const Option& option : options_with(rules)) {
        if (!filter.shows(option)) continue;
        if (option.section() != section) text += fmt::format("\n[{}]\n", section = option.section());
        const std::string value = default_of(option), indent = "      ";
        text += fmt::format("  --{}{}\n{}\n", option.name, value.empty() ? "" : "=" + value,
                            terminal_text(indent + explanation(option), terminal_columns, indent));
    }
    bool is_first = true;
    for (const Alias& alias : aliases()) {
        if (!filter.shows(alias)) continue;
        if (is_first) text += "\nOther names:\n";
        is_first = false;
        text += terminal_text(fmt::format("  --{}: {}", alias.old_name, meaning_of(alias)), terminal_columns,
                              "      ") +
                "\n";
    }
    return text.starts_with('\n') ? text.substr(1) : text;
}

std::string options_markdown(const DeckRules& rules) {
    std::string contents, sections, without_effect, section = "-";
    for (const Option& option : options_with(rules)) {
        const std::string value = default_of(option);
        const std::string type = type_name(option.type) + (value.empty() ? "" : ", default `" + value + "`");
        if (!has_effect(option)) {
            without_effect += fmt::format("| `{}` | {} | {} | {} |\n", option.name, type, description(option),
                                          reason_of(option));
            continue;
        }
        if (option.section() != section) {
            section = option.section();
            const std::string heading = section.empty() ? "Top level" : "[" + section + "]";
            sections += fmt::format("\n## {}\n\n", heading);
            contents += link_to(heading) + ", ";
        }
        sections += wrapped(fmt::format("- **`{}`** ({}): {}", option.name, type, explanation(option)),
                            document_columns, "  ") +
                    "\n";
    }
    contents += link_to("Options without effect") + ", " + link_to("Other names");
    std::string text = decks_introduction + wrapped(contents, document_columns, "") + "\n" + sections +
                       without_effect_introduction + without_effect + other_names_introduction;
    for (const Alias& alias : aliases())
        text +=
            wrapped(fmt::format("- `{}`: {}", alias.old_name, meaning_of(alias)), document_columns, "  ") +
            "\n";
    return text;
}

std::string deck_text(const Config& config, const std::map<std::string, std::string>& origins) {
    Config copy = config;
    std::string text = "# The effective deck";
    text += config.job.config_file.empty() ? ".\n"
                                           : fmt::format(" of {}.\n", toml_text({config.job.config_file}));
    std::string section;
    for (const Option& option : options()) {
        const auto value = value_of(option, copy);
        if (!value || option.name == "job.config_file") continue;
        if (option.section() != section) text += fmt::format("\n[{}]\n", section = option.section());
        const auto origin = origins.find(option.name);
        text += fmt::format("{} = {}{}\n", last_part(option), toml_text(*value),
                            origin == origins.end() ? "" : "  # " + printable(origin->second));
    }
    return text;
}

}  // namespace coeus
