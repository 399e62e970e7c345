// SPDX-License-Identifier: Apache-2.0
// `coeus help options`: the options of a deck. All commands as a man page and as shell completions.
#pragma once

#include "../commands.hpp"

namespace coeus::apps {

/// Prints all options, or those whose names contain one of the words given; with --markdown, prints
/// doc/decks.md. `arguments`: the words after "options".
int help_options(const Arguments& arguments);

/// Prints what `make install` installs: --man, --bash or --zsh.
int help_as(const std::string& form);

/// In the format of man(7), the same on every machine.
std::string man_page();
/// Completions of commands, flags, options of decks, and the values of those that are one of several words.
std::string bash_completion();
std::string zsh_completion();

}  // namespace coeus::apps
