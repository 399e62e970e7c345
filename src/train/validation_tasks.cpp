// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/validation_tasks.hpp"

#include "coeus/base/error.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/evaluate/metrics.hpp"
#include "coeus/train/validation_tokenizer.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace coeus {

std::vector<Task> read_validation_tasks(const Config& config, const DecoderConfig& model) {
    const Config::Validation& validation = config.validation;
    const Tokenizer tokenizer = validation_tokenizer(config, model, "validation.tasks");
    return read_tasks(validation.tasks, tokenizer,
                      {.context = validation.seq_len, .limit = validation.tasks_limit});
}

ValidationTasks::ValidationTasks(const Config& config, const DecoderConfig& model,
                                 const Communicator& world) {
    on_first_rank(world, [&] { tasks_ = read_validation_tasks(config, model); });
    const int64_t seq_len = config.validation.seq_len;
    const ScoringOptions options = {
        .context = seq_len,
        .stride = seq_len,
        .row_length = seq_len,
        .one_in_a_row = needs_row_for_each(model) || !config.training.document_mask,
        .sequences = config.validation.local_batch_size};
    scoring_.emplace(tasks_, options, world);
}

std::optional<std::vector<TaskMetrics>> ValidationTasks::run(Engine& engine, FunctionRef<bool()> goes_on) {
    if (!scoring_->run(engine, goes_on)) return std::nullopt;
    std::vector<TaskMetrics> all;
    std::span<const Score> left = scoring_->scores();
    for (const Task& task : tasks_) {
        size_t requests = 0;
        for (const TaskLine& line : task.lines) requests += line.requests.size();
        const std::span<const Score> scores = left.first(requests);
        left = left.subspan(requests);
        const bool finite = std::ranges::all_of(
            scores, [](const Score& score) { return std::isfinite(score.log_probability); });
        TaskMetrics& metrics = all.emplace_back(TaskMetrics{task.name, {}});
        for (const Metric& metric : metrics_of(task, scores))
            if (!finite || std::isfinite(metric.value))  // else it has no sense for the task
                metrics.values.emplace_back(metric.name,
                                            finite ? metric.value : std::numeric_limits<double>::quiet_NaN());
    }
    return all;
}

}  // namespace coeus
