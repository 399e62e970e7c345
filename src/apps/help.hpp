// SPDX-License-Identifier: Apache-2.0
// `coeus help options`: every option of a deck; and all commands as a man page and as completions of shells.
#pragma once

#include "commands.hpp"

namespace coeus::apps {

/// Prints the table, with --markdown as doc/decks.md. `arguments`: what follows "options".
int help_options(const Arguments& arguments);

/// Prints what `make install` installs: --man, --bash or --zsh.
int help_as(const std::string& form);

/// In the format of man(7), the same on every machine.
std::string man_page();
/// Completions of commands, flags, options of decks, and the values of those that are one of several words.
std::string bash_completion();
std::string zsh_completion();

}  // namespace coeus::apps
