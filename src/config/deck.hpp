// SPDX-License-Identifier: Apache-2.0
// Decks that include other decks.
#pragma once

#include "value.hpp"

#include <string>

namespace coeus::config {

/// Adds what the deck says and then, below it, what the decks say that it includes (paths relative to it; of
/// several, a later one goes before an earlier one). ConfigError: a file that cannot be read or is not TOML,
/// a deck that includes itself. Notes unknown options.
void add_deck(const std::string& file, Settings& settings, Errors& errors);

}  // namespace coeus::config
