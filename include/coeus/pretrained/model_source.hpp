// SPDX-License-Identifier: Apache-2.0
// From the deck to the model's shapes, and back from a checkpoint's description.
#pragma once

#include "coeus/io/hub.hpp"
#include "coeus/models/registry.hpp"
#include "coeus/config/config.hpp"

namespace coeus {

/// Flavour (or config.json for "hf"), then the deck's overrides; validated. ConfigError as registry.hpp and
/// DecoderConfig::validate() say.
DecoderConfig model_from_deck(const Config& config);
/// The same on every rank; of a Hugging Face folder rank 0 alone reads it. Collective.
DecoderConfig model_from_deck(const Config& config, const Communicator& ranks);

/// The shapes of config.json in a Hugging Face folder. ConfigError where it is damaged or of a model not
/// built yet.
DecoderConfig model_from_hub(const std::string& folder);

/// Its inverse. ConfigError where transformers' model of this architecture has nothing like it (another
/// norm).
HubConfig hub_config_of(const DecoderConfig& model);

/// The description a checkpoint carries: JSON with every field.
std::string describe_model(const DecoderConfig& model);
/// Reads it back; `source` names the file in errors.
DecoderConfig model_from_description(const std::string& description, const std::string& source);

}  // namespace coeus
