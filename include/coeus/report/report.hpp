// SPDX-License-Identifier: Apache-2.0
// One or several runs side by side, from their metrics.jsonl and deck.toml: as a page, as text, as a table.
#pragma once

#include "coeus/file/toml.hpp"
#include "coeus/report/goodput.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace coeus {

/// Values of a field of metrics.jsonl by step; only those up to 1e300, and 0 for those below 1e-300.
using MetricSeries = std::map<int64_t, double>;

struct RunData {
    std::string name;  ///< for people: the last parts of the folder's path
    std::filesystem::path folder;
    std::vector<std::string> fields;  ///< in the order of the file, without "step"
    std::map<std::string, MetricSeries> series;
    Goodput goodput;                   ///< of goodput.jsonl; no starts where there is none
    std::vector<TomlEntry> deck;       ///< empty where the run has no deck.toml
    std::vector<std::string> notices;  ///< what was odd about the files, one line each

    /// Empty where the run has no such field.
    const MetricSeries& of(const std::string& field) const;
    int64_t last_step() const;
};

/// Reads runs, each given as its folder (job.dump_folder) or its metrics.jsonl. Of a field that stands twice
/// for a step the later value counts; a last line cut short, of a run that is going on or was killed, is a
/// notice. ConfigError: no such folder, no run in it (names those that are near), no step logged yet, a line
/// that is not such an object, a broken deck.toml; with file and line.
std::vector<RunData> read_runs(const std::vector<std::string>& paths);

/// A page that needs nothing but itself: plots in SVG, their values under the pointer, tables.
std::string report_html(const std::vector<RunData>& runs);

/// The same for a terminal, `columns` wide.
std::string report_text(const std::vector<RunData>& runs, int columns, bool color);

/// Comma-separated: run, step, then every field; a row for each logged step of each run, with all digits.
/// What a run did not log at a step is empty.
std::string report_csv(const std::vector<RunData>& runs);

/// Writes beside the file and renames. SystemError naming the file where it cannot.
void write_report(const std::filesystem::path& file, const std::string& text);

}  // namespace coeus
