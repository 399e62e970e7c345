// SPDX-License-Identifier: Apache-2.0
// The wall time of runs by activity, over all their starts: a bar for each run that has a goodput.jsonl.
#pragma once

#include "coeus/report/report.hpp"

#include <string>
#include <vector>

namespace coeus::report {

/// "" if no run has a goodput.jsonl.
std::string wall_time_html(const std::vector<RunData>& runs);
std::string wall_time_text(const std::vector<RunData>& runs, int columns);

}  // namespace coeus::report
