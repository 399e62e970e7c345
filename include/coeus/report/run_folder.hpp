// SPDX-License-Identifier: Apache-2.0
// The folder of a run (job.dump_folder): logs of the ranks, deck.toml, metrics.jsonl, TensorBoard files,
// checkpoints, report.html.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/config/config.hpp"

#include <filesystem>
#include <functional>
#include <optional>

namespace coeus {

class RunFolder {
public:
    /// Makes all folders that the run will write to and starts the ranks' log files. ConfigError naming
    /// option and folder where one cannot be written. Collective.
    /// `own` is called when the folders are there and nothing has been written.
    RunFolder(const Config& config, const Communicator& world, const std::function<void()>& own);

    std::filesystem::path metrics_file() const { return root_ / "metrics.jsonl"; }
    std::filesystem::path goodput_file() const { return root_ / "goodput.jsonl"; }
    std::filesystem::path report_file() const { return root_ / "report.html"; }
    std::filesystem::path checkpoint_folder() const { return root_ / checkpoint_folder_; }
    std::filesystem::path memory_snapshot_folder() const { return root_ / memory_snapshot_folder_; }
    /// Of this rank's TensorBoard files; none where it writes none.
    const std::optional<std::filesystem::path>& tensorboard_folder() const { return tensorboard_folder_; }
    /// Token files made from text.
    std::filesystem::path data_folder() const { return root_ / "data"; }
    const std::filesystem::path& root() const { return root_; }

    /// If the run does not resume the one that was in its folder: moves metrics, deck, page, event files,
    /// traces and snapshots of that one into a folder earlier_N, which is itself the folder of a run. They
    /// are gathered in earlier.part, which is renamed at the end: a start that is killed in between leaves
    /// it, and the next one finishes the move. Returns earlier_N; none if nothing had been trained.
    /// SystemError if a file cannot be moved. Rank 0 only.
    std::optional<std::filesystem::path> put_earlier_run_aside(const Config& config, bool resumes) const;

    /// Writes the effective deck to deck.toml, and to job.save_config_file where that is given. Rank 0 only.
    void write_deck(const Config& config) const;

private:
    std::filesystem::path root_;
    std::string checkpoint_folder_, memory_snapshot_folder_;
    std::optional<std::filesystem::path> tensorboard_folder_;
};

}  // namespace coeus
