// SPDX-License-Identifier: Apache-2.0
// Shared by the kinds of `coeus info` that have safetensors files.
#pragma once

#include "coeus/file/safetensors.hpp"
#include "coeus/info/kinds.hpp"

namespace coeus::info {

/// Prints the number of elements by type, and one line per tensor.
void list_tensors(const Safetensors& weights);
/// Reads all elements. ConfigError naming the first tensor with an element that is not finite.
void verify_tensors(const std::string& place, const Safetensors& weights);

}  // namespace coeus::info
