// SPDX-License-Identifier: Apache-2.0
// Weights that a fresh run starts from: a checkpoint of another run, or a Hugging Face folder.
#pragma once

#include "coeus/comm/mesh.hpp"
#include "coeus/config/config.hpp"
#include "coeus/models/decoder.hpp"

#include <string>

namespace coeus {

/// Loads what checkpoint.initial_load_path and initial_load_in_hf name. Returns the source, or "" where they
/// name none. ConfigError where it is missing, damaged or of another model. Collective.
std::string load_initial_weights(const Config& config, Decoder& decoder, const Mesh& mesh);

}  // namespace coeus
