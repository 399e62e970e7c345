// SPDX-License-Identifier: Apache-2.0
// Rules over several options, and what a real run lacks.
#pragma once

#include "coeus/config/config.hpp"
#include "errors.hpp"

#include <string>
#include <vector>

namespace coeus::config {

/// Checks every section: notes each rule that does not hold, with key, value and the nearest valid choice.
void check(const Config& config, Errors& errors);
/// The same; ConfigError with a line for each.
void check(const Config& config);

/// One line for each thing that keeps a real run, but not a dry one, from starting: a setting that is not
/// built yet, with what works instead, or no data.
Words missing_for_a_run(const Config& config);

/// One notice for each option that a group of optimizer.param_groups gives, or [optimizer] sets otherwise
/// than by default (value_of), and that none of the optimizers it is for reads.
Words unread_optimizer_options(const Config& config);

}  // namespace coeus::config
