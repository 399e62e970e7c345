// SPDX-License-Identifier: Apache-2.0
// Weights that a fresh run starts from: a checkpoint of another run, or a Hugging Face folder.
#pragma once

#include "coeus/comm/mesh.hpp"
#include "coeus/config/config.hpp"
#include "coeus/models/decoder.hpp"

#include <string>

namespace coeus {

/// What checkpoint.initial_load_path and initial_load_in_hf name; "" if a run begins from random weights.
std::string initial_weights_path(const Config& config);

/// A notice if model.hf_assets_path is a Hugging Face folder with weights from which the run does not begin;
/// "" if not. Reads the folder's names.
std::string unused_weights_notice(const Config& config);

/// Loads what checkpoint.initial_load_path and initial_load_in_hf name. Returns the source, or "" where they
/// name none. ConfigError where it is missing, damaged or of another model. Collective.
std::string load_initial_weights(const Config& config, Decoder& decoder, const Mesh& mesh);

}  // namespace coeus
