// SPDX-License-Identifier: Apache-2.0
// The matrices of a model that take part in the choice of what is computed in 8 bits.
#pragma once

#include "coeus/models/model.hpp"
#include "coeus/models/precision_plan.hpp"

#include <vector>

namespace coeus {

/// The matrices of the whole model that are multiplied by tokens, and its table of tokens. The projection of
/// a tied model is listed in addition to its table.
std::vector<LayerMatrix> precision_matrices(const Model& model);

}  // namespace coeus
