// SPDX-License-Identifier: Apache-2.0
// Completions for bash and zsh, from the tables of commands, flags and options. Both scripts are a function
// over the same lists; what follows an option that has no list of values is completed as a file.
#include "coeus/base/text.hpp"
#include "coeus/deck/command_line.hpp"
#include "help.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace coeus::apps {

namespace {

// In single quotes of a shell.
std::string quoted(std::string text) {
    for (size_t at = 0; (at = text.find('\'', at)) != std::string::npos; at += 4)
        text.replace(at, 1, "'\\''");
    return "'" + text + "'";
}

// "auto|cuda|cpu" -> "auto cuda cpu"; "" if the value is not one of several words.
std::string choices_of(const Flags::Flag& flag) {
    std::string words = flag.value_name;
    if (words.find('|') == std::string::npos) return "";
    std::ranges::replace(words, '|', ' ');
    return words;
}

// --name or --name= of all options of decks; a boolean has two.
Words deck_options() {
    Words words;
    for (const OptionName& option : option_names(deck_rules())) {
        if (!option.is_boolean) {
            words.push_back("--" + option.name + "=");
            continue;
        }
        const size_t last = option.name.rfind('.') + 1;
        words.push_back("--" + option.name);
        words.push_back("--" + option.name.substr(0, last) + "no_" + option.name.substr(last));
    }
    return words;
}

// Lines "pattern) values=... ;;" for the values of flags and options.
std::string cases_of_values() {
    std::string cases;
    const auto add = [&](const std::string& pattern, const std::string& choices) {
        if (!choices.empty()) cases += fmt::format("        {}) values='{}' ;;\n", pattern, choices);
    };
    for (const Command& command : commands()) {
        const Flags flags = command.help();
        for (const Flags::Flag& flag : flags.all())
            add(fmt::format("{}:--{}", command.name, flag.name), choices_of(flag));
    }
    for (const OptionName& option : option_names(deck_rules()))
        add("*:--" + option.name, join(option.choices, " "));
    return cases;
}

Words command_names() {
    Words names;
    for (const Command& command : commands()) names.emplace_back(command.name);
    return names;
}

Words flags_of(const Command& command) {
    Words words;
    const Flags flags = command.help();
    for (const Flags::Flag& flag : flags.all())
        words.push_back("--" + flag.name + (flag.is_switch ? "" : "="));
    words.emplace_back("--help");
    return words;
}

std::string commands_with_options() {
    Words names;
    for (const Command& command : commands())
        if (command.takes_options) names.emplace_back(command.name);
    return join(names, "|");
}

}  // namespace

std::string bash_completion() {
    std::string cases;
    for (const Command& command : commands())
        cases += fmt::format("        {}) words='{}' ;;\n", command.name, join(flags_of(command), " "));
    return fmt::format(R"(# completion of coeus for bash, made by `coeus help --bash`
_coeus_values() {{ # COMMAND:OPTION: the words that may follow it
    values=
    case $1 in
{0}    esac
}}

_coeus() {{
    local values word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} command=${{COMP_WORDS[1]}} words=
    COMPREPLY=()
    # bash takes "=" for a word
    if [ "$word" = "=" ]; then
        word=
    elif [ "$before" = "=" ]; then
        before=${{COMP_WORDS[COMP_CWORD - 2]}}
    fi
    if [ "$COMP_CWORD" -eq 1 ]; then
        words='{1} help --help --version'
    elif [ "$command" = help ]; then
        words='{1} options'
    elif [[ $before == --* && $word != -* ]]; then
        _coeus_values "$command:$before"
        words=$values
    elif [[ $word == -* ]]; then
        case $command in
{2}        esac
        case $command in
        {3}) words="$words {4}" ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    [[ ${{COMPREPLY[0]}} != *= ]] || compopt -o nospace
}}
complete -o default -F _coeus coeus
)",
                       cases_of_values(), join(command_names(), " "), cases, commands_with_options(),
                       join(deck_options(), " "));
}

std::string zsh_completion() {
    std::string described, cases;
    // a colon ends a name in these lists
    for (const Command& command : commands()) {
        described += "        " + quoted(fmt::format("{}:{}", command.name, command.summary)) + "\n";
        cases += fmt::format("        {}) flags=(\n", command.name);
        const Flags flags = command.help();
        for (const Flags::Flag& flag : flags.all())
            cases += "            " +
                     quoted(fmt::format("--{}{}:{}", flag.name, flag.is_switch ? "" : "=", flag.meaning)) +
                     "\n";
        cases += "            '--help:usage, meaning and flags') ;;\n";
    }
    return fmt::format(R"(#compdef coeus
# completion of coeus for zsh, made by `coeus help --zsh`
_coeus_values() {{ # COMMAND:OPTION: the words that may follow it
    values=
    case $1 in
{0}    esac
}}

_coeus() {{
    local command=$words[2] before=$words[CURRENT-1] values
    local -a known flags options
    known=(
{1}        'help:show usage, meaning and flags of a command'
    )
    if (( CURRENT == 2 )); then
        _describe command known
        return
    fi
    if [[ $command == help ]]; then
        known+=('options:every option of a deck')
        _describe command known
        return
    fi
    if [[ $PREFIX == --*=* ]]; then
        before=${{PREFIX%%=*}}
        compset -P '*='
    fi
    if [[ $PREFIX != -* ]]; then
        _coeus_values "$command:$before"
        if [[ -n $values ]]; then compadd -- ${{=values}}; else _files; fi
        return
    fi
    case $command in
{2}    esac
    _describe -o flag flags -S ''
    case $command in
    {3})
        options=({4})
        compadd -S '' -a options ;;
    esac
}}
_coeus "$@"
)",
                       cases_of_values(), described, cases, commands_with_options(),
                       join(deck_options(), " "));
}

}  // namespace coeus::apps
