// SPDX-License-Identifier: Apache-2.0
// A checkpoint that torchtitan wrote, as Coeus would have written it: its names and shapes compared with the
// model of a deck, since the folder does not describe one.
#pragma once

#include "coeus/config/config.hpp"
#include "coeus/io/convert_weights.hpp"
#include "coeus/io/dcp.hpp"
#include "coeus/models/decoder_config.hpp"

#include <string>

namespace coeus {

struct TitanCheckpoint {
    DecoderConfig model;
    TrainRecord record;
    ArraySource arrays;  ///< weights; where it is full, also both moments of each
    bool full = false;
};

/// `deck`: of the run. `weights_only`: leave the optimizer out, as is done where the folder has none. Step
/// and number of samples go on from where the run stood; the order of the samples is Coeus's own.
/// ConfigError: the folder is damaged or of another model (names parameter and shapes), or the deck leaves
/// open how many sequences a step takes.
TitanCheckpoint read_titan_checkpoint(const std::string& folder, const Config& deck, bool weights_only);

}  // namespace coeus
