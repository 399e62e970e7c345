// SPDX-License-Identifier: Apache-2.0
// Reads decks with the models and optimizers of this program.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/config/config.hpp"
#include "coeus/config/deck_rules.hpp"

#include <string>
#include <vector>

namespace coeus {

/// The families, with those that the program registered, and the rules of models and optimizers.
DeckRules deck_rules();

/// parse_by_rules() with deck_rules().
CommandLine parse_command_line(const std::vector<std::string>& arguments, int ranks = 0);
/// The same on every rank. Collective.
CommandLine parse_command_line(const std::vector<std::string>& arguments, const Communicator& ranks);

}  // namespace coeus
