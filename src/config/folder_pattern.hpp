// SPDX-License-Identifier: Apache-2.0
// Options in the name of a run's folder: job.dump_folder = "outputs/{optimizer.lr}" becomes "outputs/0.001".
#pragma once

#include "coeus/config/config.hpp"

#include <string>

namespace coeus::config {

/// `text` with each {NAME OF AN OPTION} replaced by the option's value, in which "/", spaces, quotes and what
/// a shell would take become "_". Braces around anything that cannot be an option's name stay. ConfigError:
/// an unknown option, with the nearest known one; job.dump_folder itself.
std::string fill_in_options(const std::string& text, Config& config);

}  // namespace coeus::config
