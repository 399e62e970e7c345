// SPDX-License-Identifier: Apache-2.0
// Arguments of a command that has its own flags and also takes options of a deck, as `coeus train` does.
#pragma once

#include "../commands.hpp"

namespace coeus::apps {

struct DeckArguments {
    Arguments own;   ///< the command's own, including the deck
    Arguments deck;  ///< --section.option=value
};
DeckArguments split_deck_arguments(const Arguments& arguments);

}  // namespace coeus::apps
