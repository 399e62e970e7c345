// SPDX-License-Identifier: Apache-2.0
#include "deck_arguments.hpp"

namespace coeus::apps {

DeckArguments split_deck_arguments(const Arguments& arguments) {
    DeckArguments result;
    for (const std::string& argument : arguments) {
        const std::string name = argument.substr(0, argument.find('='));
        const bool of_deck =
            name == "--device" || (name.starts_with("--") && name.find('.') != std::string::npos);
        (of_deck ? result.deck : result.own).push_back(argument);
    }
    return result;
}

}  // namespace coeus::apps
