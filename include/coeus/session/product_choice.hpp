// SPDX-License-Identifier: Apache-2.0
// How a GPU's matrix products are computed, as the deck asks.
#pragma once

#include "coeus/comm/mesh.hpp"
#include "coeus/config/config.hpp"
#include "coeus/engine/engine.hpp"
#include "coeus/kernels/product_options.hpp"
#include "coeus/setup/finding.hpp"

namespace coeus {

/// Options of the products of a rank whose GPU has so many multiprocessors. ConfigError if kernels.sm_margin
/// leaves none of them.
ProductOptions product_options(const Config& config, const Mesh& mesh, const EngineOptions& options,
                               int multiprocessors);

/// True if products of the compute type use TF32.
bool multiplies_in_tf32(const Config& config, const EngineOptions& options);

/// Notices on options of products without effect, and on attention in float32 on GPUs; the fact that products
/// use TF32.
Findings product_findings(const Config& config, const MeshShape& mesh, const ModelConfig& model,
                          const EngineOptions& options);

}  // namespace coeus
