// SPDX-License-Identifier: Apache-2.0
// How long the steps of a planned run take by the roofline, and what the whole run takes.
#pragma once

#include "coeus/session/planned_run.hpp"

#include <string>

namespace coeus {

struct PlannedSpeed {
    double step_seconds = 0;  ///< 0: not known
    std::string text;  ///< the roofline, or why there is none; "": the run is not planned for a known GPU
};
PlannedSpeed planned_speed(const PlannedRun& planned);

/// One line: steps, time and GPU-hours if `step_seconds` is not 0, tokens, and what is on disk.
std::string run_length(const PlannedRun& planned, double step_seconds);

}  // namespace coeus
