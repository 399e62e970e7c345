// SPDX-License-Identifier: Apache-2.0
// What `coeus info` says of safetensors wherever they lie.
#pragma once

#include "coeus/file/safetensors.hpp"
#include "kinds.hpp"

namespace coeus::apps {

/// Totals by type, and a line for each tensor.
void list_tensors(const Safetensors& weights);
/// Reads everything; ConfigError naming the first tensor with an element that is not finite.
void verify_tensors(const std::string& place, const Safetensors& weights);

}  // namespace coeus::apps
