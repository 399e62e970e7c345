// SPDX-License-Identifier: Apache-2.0
// Rules over several options, and reasons why a real run cannot start.
#pragma once

#include "coeus/config/config.hpp"
#include "errors.hpp"

#include <string>
#include <vector>

namespace coeus::config {

/// Checks every section. Notes each rule that is violated, with key, value and the nearest valid choice.
void check(const Config& config, const DeckRules& rules, Errors& errors);
/// The same; throws one ConfigError with a line for each violated rule.
void check(const Config& config, const DeckRules& rules);

/// One line for each setting that is not implemented yet, with what works instead.
Words not_implemented(const Config& config, const DeckRules& rules);
/// Why there is no training data; "" if the deck names some.
std::string missing_data(const Config& config);

/// One notice for each option that is set in [optimizer] or in a group of optimizer.param_groups and that
/// none of the optimizers concerned reads. In [optimizer], an option with its default value is not set.
Words unread_optimizer_options(const Config& config);

}  // namespace coeus::config
