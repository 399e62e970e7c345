// SPDX-License-Identifier: Apache-2.0
// What a run computes in 8 bits, for the log.
#pragma once

#include "coeus/engine/engine.hpp"
#include "coeus/setup/finding.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace coeus {

/// Number of the model's parameters with which layers compute in 8 bits.
int64_t parameters_in_8_bits(const Engine& engine);
/// Facts on what is computed in 8 bits, and notices on what may not be meant so; none if the deck has no
/// converter.
Findings describe_precision(const Engine& engine);
/// If the deck has a converter: one text with a line for each group of equal linear layers, with its recipe
/// or why it stays in the compute type. Otherwise nothing.
std::vector<std::string> describe_linear_layers(const Engine& engine);
/// A warning for each converter that converts nothing.
std::vector<std::string> idle_converters(const Engine& engine);

}  // namespace coeus
