// SPDX-License-Identifier: Apache-2.0
// Weights from which a new run starts: a checkpoint of another run, or a Hugging Face folder.
#pragma once

#include "coeus/comm/mesh.hpp"
#include "coeus/config/config.hpp"
#include "coeus/models/model_config.hpp"

#include <string>

namespace coeus {

/// The path of the initial weights, according to checkpoint.initial_load_path and initial_load_in_hf; "" if a
/// run starts from random weights.
std::string initial_weights_path(const Config& config);

/// A notice if model.hf_assets_path is a Hugging Face folder with weights, but the run does not start from
/// them; else "". Reads the list of files in the folder.
std::string unused_weights_notice(const Config& config);

/// ConfigError if the weights at initial_weights_path() are missing or not of the kind that the deck says.
void check_initial_weights(const Config& config);
/// The same, and ConfigError if they are of another model. Reads the descriptions of the files only.
void require_weights_of(const Config& config, const ModelConfig& of_run);

/// Loads the weights at initial_weights_path() into the model that `of_run` built. Returns their path, or ""
/// if there is none. ConfigError if they are missing, damaged or do not fit the model, or if it is not a
/// decoder. Collective.
std::string load_initial_weights(const Config& config, const ModelConfig& of_run, Model& model,
                                 const Mesh& mesh);

}  // namespace coeus
