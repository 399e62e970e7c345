// SPDX-License-Identifier: Apache-2.0
// RunFolder: the folder of a run (job.dump_folder), with logs of the ranks, deck.toml, metrics.jsonl,
// expert_loads.jsonl, samples.jsonl, evaluation.jsonl, TensorBoard files, checkpoints and report.html.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/config/config.hpp"

#include <filesystem>
#include <functional>
#include <optional>

namespace coeus {

/// ConfigError, with option and folder, if a run on this host could not write one of its folders. Makes
/// nothing.
void require_writable_folders(const Config& config);

/// The file with the results of `coeus evaluate` for checkpoints of the run: a JSON object for each step,
/// task and metric.
inline constexpr const char* evaluation_file = "evaluation.jsonl";
/// The file with the texts that validations have written: a JSON object for each step and prompt.
inline constexpr const char* samples_file_name = "samples.jsonl";
/// The page of plots.
inline constexpr const char* page_file = "report.html";

class RunFolder {
public:
    /// Makes all folders to which the run will write, and starts the ranks' log files. Calls `own` when the
    /// folders exist and nothing has been written to them. ConfigError, with option and folder, if one cannot
    /// be written. Collective.
    RunFolder(const Config& config, const Communicator& world, const std::function<void()>& own);

    std::filesystem::path metrics_file() const { return root_ / "metrics.jsonl"; }
    std::filesystem::path expert_loads_file() const { return root_ / "expert_loads.jsonl"; }
    std::filesystem::path samples_file() const { return root_ / samples_file_name; }
    std::filesystem::path goodput_file() const { return root_ / "goodput.jsonl"; }
    std::filesystem::path report_file() const { return root_ / page_file; }
    std::filesystem::path checkpoint_folder() const { return root_ / checkpoint_folder_; }
    std::filesystem::path memory_snapshot_folder() const { return root_ / memory_snapshot_folder_; }
    /// The folder of this rank's TensorBoard files; none if the rank does not write any.
    const std::optional<std::filesystem::path>& tensorboard_folder() const { return tensorboard_folder_; }
    /// Token files made from text.
    std::filesystem::path data_folder() const { return root_ / "data"; }
    const std::filesystem::path& root() const { return root_; }

    /// If the run does not resume the run that was in its folder: moves metrics, deck, page, event files,
    /// traces and snapshots of that run into a folder earlier_N, which then is itself the folder of a run.
    /// They are collected in earlier.part, which is renamed at the end. If a start is killed in between, the
    /// next start finishes the move. Returns earlier_N; none if no step had been logged. SystemError if a
    /// file cannot be moved. Rank 0 only.
    std::optional<std::filesystem::path> put_earlier_run_aside(const Config& config, bool resumes) const;

    /// Writes the effective deck to deck.toml, and to job.save_config_file if that is given. Rank 0 only.
    void write_deck(const Config& config) const;

private:
    std::filesystem::path root_;
    std::string checkpoint_folder_, memory_snapshot_folder_;
    std::optional<std::filesystem::path> tensorboard_folder_;
};

}  // namespace coeus
