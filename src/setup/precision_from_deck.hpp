// SPDX-License-Identifier: Apache-2.0
// What a deck asks to compute in 8 bits.
#pragma once

#include "coeus/config/config.hpp"
#include "coeus/state/precision.hpp"

#include <string>

namespace coeus {

/// The options of model.converters.
Precision precision_from_deck(const Config& config);
/// The converter that asks for this recipe of linear layers, or of experts: "quantize.linear.float8".
std::string converter_of(Recipe recipe, bool of_experts);

}  // namespace coeus
