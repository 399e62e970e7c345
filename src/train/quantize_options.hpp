// SPDX-License-Identifier: Apache-2.0
// What a deck asks to compute in 8 bits, its rules for model and mesh, and its description.
#pragma once

#include "coeus/config/config.hpp"
#include "coeus/engine/engine.hpp"

#include <string>
#include <vector>

namespace coeus {

/// The options of model.converters.
Quantize quantize_from_deck(const Config& config);

/// ConfigError with the nearest valid setting if experts are converted in a model that has none; or if the
/// mesh leaves sides of matrices or numbers of tokens that are not multiples of 32 (MX), or of 16 (GPUs with
/// 8-bit products).
void require_quantized_fits(const Config& config, const DecoderConfig& model, const EngineOptions& options);

/// Lines on what is computed in 8 bits, and notices on what may not be meant so; empty if nothing is.
std::vector<std::string> describe_quantized(const Engine& engine);

}  // namespace coeus
