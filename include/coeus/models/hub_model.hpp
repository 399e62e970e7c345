// SPDX-License-Identifier: Apache-2.0
// config.json of Hugging Face folders: the model that it says, and the one that says a model.
#pragma once

#include "coeus/file/json.hpp"
#include "coeus/models/decoder_config.hpp"
#include "coeus/models/registry.hpp"

#include <span>
#include <string>
#include <vector>

namespace coeus {

/// The architectures that some family takes.
std::vector<std::string> hub_architectures();

/// What config.json of a folder says.
struct HubModel {
    DecoderConfig config;                   ///< with flavour "hf"
    std::vector<std::string> unknown_keys;  ///< neither its family reads them nor are they without meaning:
                                            ///< they may say another model
};

/// Reads config.json in a folder. `family`: the one that a deck names, for architectures that several take;
/// "": the latest of them. ConfigError naming file and key: another architecture, one that the named family
/// does not take, a missing or wrong value, a feature that is not built.
HubModel read_hub_model(const std::string& folder, const std::string& family = "");
/// The same; keys that are not known are named in a warning.
DecoderConfig model_from_hub(const std::string& folder, const std::string& family = "");

/// The family among these that a config.json is read by: `named`, or if that is "" the last one that takes
/// the architecture. ConfigError as above.
const ModelFamily& claimed_family(std::span<const ModelFamily> families, const JsonView& config,
                                  const std::string& named);

/// The inverse of model_from_hub, without types and tokens. ConfigError naming the field that this
/// architecture's config.json cannot say.
Json hub_config_of(const DecoderConfig& model);

}  // namespace coeus
