// SPDX-License-Identifier: Apache-2.0
// ValidationTasks: the tasks of validation.tasks, which each validation scores as `coeus evaluate` does.
#pragma once

#include "coeus/config/config.hpp"
#include "coeus/evaluate/scoring.hpp"
#include "coeus/metrics/metrics.hpp"

#include <optional>
#include <string>
#include <vector>

namespace coeus {

/// The tasks of validation.tasks for a model. ConfigError: see read_tasks(); the tokenizer has more tokens
/// than the model's vocabulary; validation is off.
std::vector<Task> read_validation_tasks(const Config& config, const DecoderConfig& model);

class ValidationTasks {
public:
    /// Rank 0 reads the files. Requests share rows if the run masks documents and the model allows it; else
    /// each has a row of validation.seq_len to itself. Collective.
    ValidationTasks(const Config& config, const DecoderConfig& model, const Communicator& world);

    /// Scores all tasks; the result is on rank 0. All ranks call `goes_on` before each batch; if it returns
    /// false, on all ranks alike, nothing is returned. Collective.
    std::optional<std::vector<TaskMetrics>> run(Engine& engine, FunctionRef<bool()> goes_on);

private:
    std::vector<Task> tasks_;  // on rank 0
    std::optional<Scoring> scoring_;
};

}  // namespace coeus
