// SPDX-License-Identifier: Apache-2.0
// Converts between config.json of Hugging Face folders and the configuration of a model.
#pragma once

#include "coeus/file/json.hpp"
#include "coeus/models/decoder_config.hpp"
#include "coeus/models/registry.hpp"

#include <span>
#include <string>
#include <vector>

namespace coeus {

/// The architectures that the families can read, also those whose text model alone is read.
std::vector<std::string> hub_architectures();

/// The model of a folder's config.json.
struct HubModel {
    DecoderConfig config;                   ///< with the flavour "hf"
    std::vector<std::string> unknown_keys;  ///< keys that the family does not read and that are not known to
                                            ///< be irrelevant: the model may be different
    /// Dropout and noise of routers, if they are not 0: "attention_dropout = 0.1". transformers applies them
    /// while it trains.
    std::vector<std::string> not_applied;

    /// These, and what Coeus does instead: "attention_dropout = 0.1: Coeus trains ..."; "" if there are none.
    std::string about_not_applied() const;
};

/// Reads config.json in a folder. `family`: the family that the deck names, for architectures that several
/// families can read; "": the latest of these. ConfigError naming file and key: an unknown architecture, one
/// that the named family cannot read, a missing or wrong value, a feature that is not implemented.
HubModel read_hub_model(const std::string& folder, const std::string& family = "");
/// Logs a warning that names unknown keys, if there are any.
void warn_of_unknown_keys(const std::string& folder, const HubModel& model);
/// Reads config.json, and warns of unknown keys.
DecoderConfig model_from_hub(const std::string& folder, const std::string& family = "");

/// Reads a config.json, with a list "architectures", by the table of a family (hub_keys.hpp); name and
/// flavour are not set. ConfigError as above.
DecoderConfig model_of_keys(const ModelFamily& family, const JsonView& json);

/// The architecture of a config.json: "architectures", or, if that is absent, null or empty, that of
/// "model_type". If there is a "text_config", it is that of this text model. ConfigError: neither says which
/// one; or "model_type", by which transformers goes, belongs to another architecture.
std::string hub_architecture(std::span<const ModelFamily> families, const JsonView& config);

/// The name of the family that reads a folder if a deck names none; "" if the folder has no config.json, or
/// one of an unknown architecture.
std::string family_of_folder(const std::string& folder);

/// The family among these that reads a config.json: `named`, or, if that is "", the last one that can read
/// the architecture. ConfigError as above.
const ModelFamily& claimed_family(std::span<const ModelFamily> families, const JsonView& config,
                                  const std::string& named);

/// The inverse of model_from_hub, without types and tokens. ConfigError naming a field whose value cannot be
/// expressed in this architecture's config.json.
Json hub_config_of(const DecoderConfig& model);

}  // namespace coeus
