// SPDX-License-Identifier: Apache-2.0
// What a deck asks to compute in 8 bits, its rules for mesh and model, and its description.
#pragma once

#include "coeus/config/config.hpp"
#include "coeus/engine/engine.hpp"
#include "coeus/state/quantize.hpp"

namespace coeus {

/// The options of model.converters.
Quantize quantize_from_deck(const Config& config);

}  // namespace coeus
