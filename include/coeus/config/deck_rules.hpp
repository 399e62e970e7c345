// SPDX-License-Identifier: Apache-2.0
// What reading a deck needs of models and optimizers. config uses neither: who reads a deck hands it down
// (deck/command_line.hpp).
#pragma once

#include "coeus/config/config.hpp"

#include <functional>
#include <string>
#include <vector>

namespace coeus {

/// Without any, a deck is checked by the rules of config alone.
struct DeckRules {
    /// Another name of a value, as other programs call it. A notice says what it stands for.
    struct OtherName {
        std::string name, value;  ///< "llama3_ft", "llama3"
        std::string why;          ///< what it says besides, and how a deck of Coeus says that
    };
    /// The values of an option that config does not know.
    struct Choices {
        std::string option;  ///< "model.name"
        Words all, built;    ///< as in Option: those that are known, those of them that work
        std::vector<OtherName> other_names = {};  ///< they are in `all` too
    };
    std::vector<Choices> choices;

    /// The model.name for the config.json in a folder; "" if no family reads it.
    std::function<std::string(const std::string& folder)> family_of_folder;
    /// ConfigError if the degrees do not fit the model on so many ranks. Checked before the mesh.
    std::function<void(const Config& config, int ranks)> check_degrees;
    /// ConfigError if [optimizer] or one of its groups is not valid.
    std::function<void(const OptimizerOptions& options, const std::vector<ParamGroupOptions>& groups)>
        check_optimizer;
    bool needs_data = true;  ///< it is an error if this host does not have the data that the deck names
};

}  // namespace coeus
