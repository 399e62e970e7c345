// SPDX-License-Identifier: Apache-2.0
// Reads a checkpoint of torchtitan as if Coeus had written it. Its names and shapes are compared with the
// model of a deck, since the folder does not describe its model.
#pragma once

#include "coeus/config/config.hpp"
#include "coeus/io/convert_weights.hpp"
#include "coeus/models/decoder_config.hpp"

#include <string>

namespace coeus {

struct TitanCheckpoint {
    DecoderConfig model;
    TrainRecord record;
    ArraySource arrays;  ///< weights; if `full`, also the optimizer's moments
    bool full = false;
};

/// `deck`: the deck of the run. `weights_only`: leave out the optimizer state. If the folder contains none,
/// it is left out anyway. A run resumes at the folder's step and number of samples, but the samples are in
/// Coeus's own order. ConfigError: the folder is damaged or does not fit the deck's model (with parameter and
/// shapes), or the deck does not determine how many sequences a step uses.
TitanCheckpoint read_titan_checkpoint(const std::string& folder, const Config& deck, bool weights_only);

}  // namespace coeus
