// SPDX-License-Identifier: Apache-2.0
// The configuration of the model that a deck describes.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/config/config.hpp"
#include "coeus/models/decoder_config.hpp"

namespace coeus {

/// The model of model.flavor (for "hf": of config.json) with the deck's overrides, validated. ConfigError as
/// in registry.hpp and DecoderConfig::validate().
DecoderConfig model_from_deck(const Config& config);
/// Returns the same on every rank; only rank 0 reads a Hugging Face folder. Collective.
DecoderConfig model_from_deck(const Config& config, const Communicator& ranks);

}  // namespace coeus
