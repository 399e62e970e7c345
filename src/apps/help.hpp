// SPDX-License-Identifier: Apache-2.0
// `coeus help options`: the options of a deck.
#pragma once

#include "commands.hpp"

namespace coeus::apps {

/// Prints all options, or those whose names contain one of the words given; with --markdown, prints
/// doc/decks.md. `arguments`: the words after "options".
int help_options(const Arguments& arguments);

}  // namespace coeus::apps
