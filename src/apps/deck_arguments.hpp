// SPDX-License-Identifier: Apache-2.0
// Arguments of a command that takes options of a deck, as `coeus train` does, beside options of its own.
#pragma once

#include "commands.hpp"

namespace coeus::apps {

struct DeckArguments {
    Arguments own;   ///< the deck is among them
    Arguments deck;  ///< --section.option=value
};
DeckArguments split_deck_arguments(const Arguments& arguments);

}  // namespace coeus::apps
