// SPDX-License-Identifier: Apache-2.0
// The tables of a report: the last figures of the runs, and what their decks say differently.
#pragma once

#include "coeus/report/report.hpp"

#include <string>
#include <vector>

namespace coeus::report {

struct TableRow {
    std::string name;
    std::vector<std::string> cells;  ///< one for each run; "" where a run has nothing to say
};

/// Rows for which at least one run has a figure.
std::vector<TableRow> final_figures(const std::vector<RunData>& runs);

/// Options with different values, but for those that say where a run writes and what it shows. None for one
/// run.
std::vector<TableRow> deck_differences(const std::vector<RunData>& runs);

/// The option's value in a run's deck, as TOML; "" where it is not there.
std::string deck_value(const RunData& run, const std::string& option);

}  // namespace coeus::report
