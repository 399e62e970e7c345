// SPDX-License-Identifier: Apache-2.0
// Results of an evaluation as a table, as JSON with the keys of lm-evaluation-harness, and as the history of
// a run (evaluation_file in its folder).
#pragma once

#include "coeus/evaluate/metrics.hpp"
#include "coeus/file/json.hpp"
#include "coeus/metrics/run_folder.hpp"

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace coeus {

/// What a task's requests gave.
struct TaskResult {
    const Task* task = nullptr;
    std::vector<Score> scores;  ///< of all its requests
    std::vector<Metric> metrics = {};
    std::map<int, PositionLosses> positions = {};  ///< of documents
};

/// The results of all tasks, in order. NotFiniteError, with task and line, if a score is not finite.
std::vector<TaskResult> results_of(const std::vector<Task>& tasks, const Scoring& scoring);

/// One line for each task, first those with questions, then the documents; with `by_position` also the losses
/// by position.
std::string table_of(const std::vector<TaskResult>& results, bool by_position);

/// {"results": {TASK: {"acc,none": ..., "acc_stderr,none": ...}}, "n-samples": ..., "config": ...}
Json json_of(const std::vector<TaskResult>& results, const Json& config, bool by_position);

/// One JSON object for each line of a task: the scores of its requests.
std::string samples_of(const std::vector<TaskResult>& results);

/// The steps and tasks that a history has with these settings (an object: what differs from the defaults);
/// none if the file does not exist. A last line without its end, which an interrupted evaluation left, does
/// not count.
std::set<std::pair<int64_t, std::string>> evaluated_in(const std::filesystem::path& history,
                                                       const Json& settings);
/// Appends the metrics of a step, and the settings unless all are the defaults. SystemError if the file
/// cannot be written.
void append_to(const std::filesystem::path& history, int64_t step, const std::vector<TaskResult>& results,
               const Json& settings);

}  // namespace coeus
