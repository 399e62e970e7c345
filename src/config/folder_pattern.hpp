// SPDX-License-Identifier: Apache-2.0
// Options in the name of a run's folder: job.dump_folder = "outputs/{optimizer.lr}" becomes "outputs/0.001".
#pragma once

#include "coeus/config/config.hpp"

#include <string>

namespace coeus::config {

/// `text` with each {OPTION} replaced by the option's value. In the value, quotes, brackets and spaces are
/// removed, and all characters but letters, digits and "._-+=" become "_". Braces stay if their content
/// cannot be the name of an option. ConfigError: an unknown option (with the nearest known one), or
/// job.dump_folder itself.
std::string fill_in_options(const std::string& text, Config& config);

}  // namespace coeus::config
