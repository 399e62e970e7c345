// SPDX-License-Identifier: Apache-2.0
// Rules over several options, and what is not built yet.
#pragma once

#include "coeus/train/config.hpp"

#include <string>
#include <vector>

namespace coeus::config {

/// Checks every section. ConfigError names key, value, rule and the nearest valid choice.
void check(const Config& config);

/// One line for each setting that is not built yet, naming it, its value and what works.
Words not_built_yet(const Config& config);

}  // namespace coeus::config
