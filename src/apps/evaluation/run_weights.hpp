// SPDX-License-Identifier: Apache-2.0
// What a checkpoint says of its run, and the deck of an evaluation of it.
#pragma once

#include "asked.hpp"
#include "coeus/comm/communicator.hpp"
#include "coeus/config/deck_rules.hpp"
#include "coeus/pretrained/pretrained.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace coeus::apps {

struct Weights {
    std::string path;
    int64_t step = 0, last_step = 0;  ///< of the checkpoint, and of its run when it was saved
    std::vector<std::string> deck;    ///< settings of its deck, "key = value"; empty: a Hugging Face folder
    std::string run_folder;           ///< "": none is known
    std::string id;                   ///< weights_id(); "": a Hugging Face folder
};

/// The same on every rank; only rank 0 reads files. `place`: what the command line names, perhaps the folder
/// of the run. Collective.
Weights weights_of(const Communicator& world, const Pretrained& source, const std::string& place);

/// The steps that the run has by its own deck.toml, which is newer than the one of a checkpoint if the run
/// was extended. Only rank 0 reads files.
int64_t planned_steps(const Weights& weights);

/// Whether the run computed layers in 8 bits.
bool was_in_8_bits(const Weights& weights);

/// A text in TOML.
std::string toml_of(const std::string& text);

/// The deck of an evaluation with rows of this length: the machine's options are those of the command line,
/// and the run's deck says which layers are computed in 8 bits. For the windows of training it says more:
/// types and validation.
Config deck_for(const Config& machine, const DeckRules& rules, const Weights& weights, const Asked& asked,
                int64_t row_length, bool masks);

/// `config` with the files of `asked` in place of the data that the run validated on: of its validation data,
/// or of the training data of which a part was held out. Text is read as the run read it.
Config deck_of_data(const Config& config, const DeckRules& rules, const Weights& weights, const Asked& asked,
                    const std::string& tokenizer);

}  // namespace coeus::apps
