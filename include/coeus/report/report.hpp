// SPDX-License-Identifier: Apache-2.0
// Reports on one or several runs, from their metrics.jsonl, evaluation.jsonl, samples.jsonl,
// expert_loads.jsonl and deck.toml: an HTML page, text for a terminal, CSV.
#pragma once

#include "coeus/file/toml.hpp"
#include "coeus/metrics/goodput.hpp"
#include "coeus/metrics/load_history.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace coeus {

/// Values of a field of metrics.jsonl by step. Values whose magnitude is above 1e300 are left out; those
/// below 1e-300 are 0.
using MetricSeries = std::map<int64_t, double>;

/// A metric of a task, from evaluation.jsonl or of validation.tasks.
struct EvaluatedMetric {
    /// "arc_easy"; with settings that are not the defaults "arc_easy (context 16)"; of the run's validations
    /// "arc_easy in validations"
    std::string task;
    std::string metric;
    std::string field;  ///< of RunData::series: "arc_easy acc"
};

/// A text that a validation has written, from samples.jsonl.
struct WrittenSample {
    int64_t step = 0;
    std::string prompt, text;
};

struct RunData {
    std::string name;  ///< shown in the report: the last parts of the folder's path
    std::filesystem::path folder;
    std::vector<std::string> fields;  ///< in the order of the file, without "step"
    std::map<std::string, MetricSeries> series;
    std::vector<EvaluatedMetric> evaluations;  ///< in the order of the file; none if it is absent
    std::vector<WrittenSample> samples;        ///< in the order of the file; none if it is absent
    LoadHistory expert_loads;                  ///< from expert_loads.jsonl; empty if the file is absent
    Goodput goodput;                           ///< from goodput.jsonl; 0 starts if there is no such file
    std::vector<RunStart> starts;              ///< from goodput.jsonl too
    std::vector<TomlEntry> deck;               ///< empty if the run has no deck.toml
    std::vector<std::string> notices;          ///< problems of the files, one line each

    /// Empty if the run has no such field. Besides those of the file there are:
    /// - total_tps: tokens per second of all ranks
    /// - bits_per_byte, validation_bits_per_byte: the cross entropy, of text whose number of bytes is known
    const MetricSeries& of(const std::string& field) const;
    int64_t last_step() const;
};

/// Reads runs, each given as its folder (job.dump_folder) or its metrics.jsonl. If a field has two values for
/// a step, the later value counts. An incomplete last line, of a run that is still running or was killed, is
/// a notice. ConfigError, with file and line: no such folder, no run in it (the message lists runs below it),
/// no step logged yet, a line that is not a JSON object, an invalid deck.toml.
std::vector<RunData> read_runs(const std::vector<std::string>& paths);

/// A self-contained page: plots in SVG, with their values under the pointer, and tables.
std::string report_html(const std::vector<RunData>& runs);

/// The same for a terminal, `columns` wide.
std::string report_text(const std::vector<RunData>& runs, int columns, bool color);

/// Comma-separated: run, step, then every field; one row per logged step of each run, with all digits. A
/// field that a run did not log at a step is empty.
std::string report_csv(const std::vector<RunData>& runs);

/// Writes under a temporary name and renames. SystemError, with the file's name, if it cannot.
void write_report(const std::filesystem::path& file, const std::string& text);

/// Writes the page of the run in this folder. Returns false after a failure, which is a warning: `coeus
/// report` can write the page later.
bool write_page_of(const std::filesystem::path& run);

}  // namespace coeus
