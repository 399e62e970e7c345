// SPDX-License-Identifier: Apache-2.0
// From the deck to the model's shapes.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/config/config.hpp"
#include "coeus/models/decoder_config.hpp"

namespace coeus {

/// Flavour (or config.json for "hf"), then the deck's overrides; validated. ConfigError as registry.hpp and
/// DecoderConfig::validate() say.
DecoderConfig model_from_deck(const Config& config);
/// The same on every rank; of a Hugging Face folder rank 0 alone reads it. Collective.
DecoderConfig model_from_deck(const Config& config, const Communicator& ranks);

}  // namespace coeus
