// SPDX-License-Identifier: Apache-2.0
// config.json of Hugging Face folders: the model that it says, and the one that says a model.
#pragma once

#include "coeus/file/json.hpp"
#include "coeus/models/decoder_config.hpp"

#include <string>
#include <vector>

namespace coeus {

/// The architectures that some family takes.
std::vector<std::string> hub_architectures();

/// The model of config.json in a folder, with flavour "hf". `family`: the one that a deck names, for
/// architectures that several take; "": the latest of them. ConfigError naming file and key: another
/// architecture, one that the named family does not take, a missing or wrong value, a feature that is not
/// built.
DecoderConfig model_from_hub(const std::string& folder, const std::string& family = "");

/// Keys of config.json that neither its family reads nor anybody needs: they may say another model.
std::vector<std::string> unknown_hub_keys(const std::string& folder);

/// Its inverse, without types and tokens. ConfigError naming the field that this architecture's config.json
/// cannot say.
Json hub_config_of(const DecoderConfig& model);

}  // namespace coeus
