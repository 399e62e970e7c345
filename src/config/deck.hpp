// SPDX-License-Identifier: Apache-2.0
// Decks that include other decks.
#pragma once

#include "value.hpp"

#include <string>

namespace coeus::config {

/// Adds the settings of a deck, then those of the decks that it includes: they apply to options that the deck
/// does not set. Paths are relative to the deck. If it includes several decks, a later one takes precedence
/// over an earlier one. ConfigError: a file that cannot be read or is not TOML, a deck that includes itself.
/// Unknown options are noted in `errors`.
void add_deck(const std::string& file, Settings& settings, Errors& errors);

}  // namespace coeus::config
