// SPDX-License-Identifier: Apache-2.0
// The folder of a run's checkpoints: names of its files, which ones exist, and which ones are kept. A
// checkpoint gets its name when all of it is on the disk (checkpoint_file.hpp). Nothing here is collective:
// functions that change a folder are called on rank 0 only. A run looks for the newest checkpoint that is
// whole in checkpoint_load.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <system_error>
#include <vector>

namespace coeus {

/// A full checkpoint.
struct StepFile {
    int64_t step;
    std::string path;
};
/// The full checkpoints in a folder, found by their names only; oldest first. There are none if the folder
/// does not exist. A folder that cannot be listed may have some: ReadError.
std::vector<StepFile> list_checkpoints(const std::string& folder);
/// The same; `unlisted`: why the folder cannot be listed.
std::vector<StepFile> list_checkpoints(const std::string& folder, std::error_code& unlisted);
/// The error of a deck whose checkpoint.load_step is not in the folder: names the steps that are.
std::string missing_step_error(const std::string& folder, int64_t step);

/// The folder of checkpoints that the deck.toml in the folder of a run names (checkpoint.folder); "" if that
/// deck is not there, cannot be read, or names none.
std::string checkpoint_folder_of(const std::string& run);

/// For generation: the newest file with weights in a checkpoint folder or in a run's folder, a full
/// checkpoint or only a model. A run's folder of checkpoints is the one of its deck.toml, else one directly
/// below. ConfigError if there is none.
std::string newest_weights(const std::string& folder);

/// Removes files and folders, which takes a while if they are large. The parts of a checkpoint that could not
/// be removed stay too. Returns a text on the paths that could not be removed, or "".
std::string remove_all(const std::vector<std::string>& paths);

/// The run that writes to a checkpoint folder.
struct CheckpointWriter {
    std::string id;                               ///< part of the names of its unfinished files; "": none
    std::function<void()> require_owned = [] {};  ///< throws if another run has taken the folder
};

class CheckpointFolder {
public:
    /// `keep_latest`: how many full checkpoints are kept when one is added; 0: all.
    CheckpointFolder(std::string path, int64_t keep_latest, CheckpointWriter writer = {})
        : path_(std::move(path)), keep_latest_(keep_latest), writer_(std::move(writer)) {}

    const std::string& path() const { return path_; }
    const CheckpointWriter& writer() const { return writer_; }
    /// The file of a step: "FOLDER/step-00000100.h5".
    std::string path_of(int64_t step) const;
    /// The file with the weights only: "FOLDER/model-00000100.h5".
    std::string model_path_of(int64_t step) const;
    /// For messages: `found` and the path of the newest full checkpoint, or `none`, or that the folder cannot
    /// be listed.
    std::string newest_text(const char* found, const char* none) const;

    /// Call it after the checkpoint of this step was published. Renames files of later steps: they are
    /// damaged, or belong to a branch that the run has left. Returns the files beyond keep_latest, then the
    /// folders of parts that no checkpoint names any more; pass them to remove_all() in this order. If
    /// another run has taken the folder, or if it cannot be listed, nothing is renamed and nothing is
    /// returned.
    std::vector<std::string> retire(int64_t step) const;
    /// Removes the unfinished files of runs that were killed during a save. No save may be under way.
    void remove_unfinished() const;

private:
    std::string path_;
    int64_t keep_latest_;
    CheckpointWriter writer_;
};

}  // namespace coeus
