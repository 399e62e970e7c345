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

/// What the results of a line of a history are of, besides the task.
struct ResultsOf {
    int64_t step = 0;
    std::string weights = {};        ///< see weights_id()
    Json settings = Json::object();  ///< what differs from the defaults
};

/// The names of those tasks whose results in a history are of this step and these weights, with these
/// settings and the content that the task has now. The last results of step, task and settings count. Those
/// of an earlier version, which do not say of which weights they are, do not count, nor does a last line
/// without its end, which an interrupted evaluation left. None if the file does not exist.
std::set<std::string> evaluated_in(const std::filesystem::path& history, const ResultsOf& of,
                                   const std::vector<Task>& tasks);
/// Appends the metrics of tasks, and the settings unless all are the defaults. SystemError if the file cannot
/// be written.
void append_to(const std::filesystem::path& history, const ResultsOf& of,
               const std::vector<TaskResult>& results);

}  // namespace coeus
