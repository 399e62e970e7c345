// SPDX-License-Identifier: Apache-2.0
// `coeus help options`: every option of a deck.
#pragma once

#include "commands.hpp"

namespace coeus::apps {

/// Prints the table, with --markdown as doc/decks.md. `arguments`: what follows "options".
int help_options(const Arguments& arguments);

}  // namespace coeus::apps
