// SPDX-License-Identifier: Apache-2.0
// A model of golden/evaluate in an engine that only evaluates, and its task files.
#pragma once

#include "coeus/evaluate/results.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace coeus::test {

/// The JSON files of golden/evaluate that have the scores of a model, sorted by name.
std::vector<std::filesystem::path> golden_evaluations();
/// The task files, sorted by name.
std::vector<std::string> golden_task_files();

class GoldenEvaluation {
public:
    /// On the ranks of `mesh`, in float64. The pipeline has as many stages as the mesh has ranks along pp.
    GoldenEvaluation(const std::filesystem::path& file, const Mesh& mesh);

    /// Whether a mesh can divide the model of a file.
    static bool fits(const std::filesystem::path& file, const MeshShape& mesh);

    const JsonDocument& document() const { return document_; }
    int64_t context() const { return context_; }
    std::string tokenizer_name() const { return document_.root().string("tokenizer"); }
    Tokenizer tokenizer() const;
    Engine& engine() { return *engine_; }
    /// The tasks as this way to add BOS reads them.
    std::vector<Task> tasks(AddBos add_bos) const;
    ScoringOptions options(int64_t stride) const;
    /// The results of the tasks, on every rank.
    std::vector<TaskResult> results(const std::vector<Task>& tasks, int64_t stride);

private:
    JsonDocument document_;
    int64_t context_;
    const Mesh& mesh_;
    DecoderConfig model_;
    std::unique_ptr<Engine> engine_;
};

/// The scores in a file's part ("add_bos_token=none") for a task; `stride`: "" or "_stride_12".
std::vector<double> golden_scores(const JsonView& part, const std::string& task, const std::string& stride);

}  // namespace coeus::test
