// SPDX-License-Identifier: Apache-2.0
// Whether a model, a mesh and a GPU can compute what a deck asks to compute in 8 bits.
#pragma once

#include "coeus/config/config.hpp"
#include "coeus/engine/engine.hpp"

#include <string>

namespace coeus {

/// True if GPUs multiply the 8-bit numbers of linear layers as they are. CPUs, and GPUs that emulate such
/// products, decode them first.
bool multiplies_in_8_bits(const EngineOptions& options);
/// The same for the 8-bit numbers of experts; those of MXFP8 are decoded on every device.
bool multiplies_experts_in_8_bits(const EngineOptions& options);

/// ConfigError with the nearest valid setting if experts are converted in a model that has none; or if the
/// mesh leaves sides of matrices or numbers of tokens that are not multiples of 32 (MX), or of 16 (GPUs with
/// 8-bit products).
void require_precision_fits(const Config& config, const ModelConfig& model, const EngineOptions& options);

/// ConfigError if linear layers need 8-bit products that the GPU does not have. `gpu`: its name. It is not
/// checked if its compute capability is 0.
void require_8_bit_products(const EngineOptions& options, const std::string& gpu, int capability);

}  // namespace coeus
