// SPDX-License-Identifier: Apache-2.0
// Limits of time as they are given to Slurm.
#pragma once

#include <optional>
#include <string>

namespace coeus {

/// Seconds of a time as Slurm writes it: "MM", "MM:SS", "HH:MM:SS", "D-HH", "D-HH:MM", "D-HH:MM:SS". Nothing
/// where it is none of these.
std::optional<double> seconds_of_wall_time(const std::string& text);

}  // namespace coeus
