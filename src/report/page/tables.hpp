// SPDX-License-Identifier: Apache-2.0
// The tables of a report: the final figures of the runs, and the differences between their decks.
#pragma once

#include "coeus/report/report.hpp"

#include <string>
#include <vector>

namespace coeus::report {

struct TableRow {
    std::string name;
    std::vector<std::string> cells;  ///< one per run; "" if a run has no value
};

/// Rows for which at least one run has a figure.
std::vector<TableRow> final_figures(const std::vector<RunData>& runs);

/// Model, mesh, machine, data and version of the runs: of their last starts or, if these are not recorded,
/// from their decks.
std::vector<TableRow> facts_of(const std::vector<RunData>& runs);

/// job.description of a run's deck; "" if it is absent or the default.
std::string description_of(const RunData& run);

/// The starts of a run: a row of titles, and one row per start with its steps, its time, where it ran, what
/// the deck had changed since the start before, and why it ended. Columns that are empty for all starts are
/// left out. Empty if the run has no record of its starts.
std::vector<std::vector<std::string>> table_of_starts(const RunData& run);

/// Options with different values, except those on where a run writes its files and what it logs. Empty for a
/// single run.
std::vector<TableRow> deck_differences(const std::vector<RunData>& runs);

/// The option's value in a run's deck, as TOML; "" if the deck does not have it.
std::string deck_value(const RunData& run, const std::string& option);

}  // namespace coeus::report
