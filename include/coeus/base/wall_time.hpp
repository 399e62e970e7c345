// SPDX-License-Identifier: Apache-2.0
// Time limits in Slurm's notation.
#pragma once

#include <optional>
#include <string>

namespace coeus {

/// Seconds of a time limit in Slurm's notation: "MM", "MM:SS", "HH:MM:SS", "D-HH", "D-HH:MM", "D-HH:MM:SS".
/// Nothing if the text is none of these.
std::optional<double> seconds_of_wall_time(const std::string& text);

}  // namespace coeus
