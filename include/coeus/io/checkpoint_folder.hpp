// SPDX-License-Identifier: Apache-2.0
// The folder of a run's checkpoints: what its files are called, which there are, and which of them stay.
// Nothing here is collective: what changes a folder is called on rank 0 alone.
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
/// Full checkpoints in a folder by name alone, oldest first.
std::vector<StepFile> list_checkpoints(const std::string& folder);
/// The same; `status`: why the folder cannot be listed, for example because it does not exist.
std::vector<StepFile> list_checkpoints(const std::string& folder, std::error_code& status);

/// The newest weights in a folder of checkpoints or in a run's folder, full or model only, for generation;
/// ConfigError if there are none.
std::string newest_weights(const std::string& folder);

/// Removes files and folders, which takes a while if they are large. What could not be removed, in words, or
/// "".
std::string remove_all(const std::vector<std::string>& paths);

/// The run that writes into a folder of checkpoints.
struct CheckpointWriter {
    std::string id;                               ///< part of the names of its unfinished files; "": none
    std::function<void()> require_owned = [] {};  ///< throws if the folder is another run's by now
};

class CheckpointFolder {
public:
    /// `keep_latest`: how many full checkpoints stay when one is added; 0: all.
    CheckpointFolder(std::string path, int64_t keep_latest, CheckpointWriter writer = {})
        : path_(std::move(path)), keep_latest_(keep_latest), writer_(std::move(writer)) {}

    const std::string& path() const { return path_; }
    const CheckpointWriter& writer() const { return writer_; }
    /// The file of a step: "FOLDER/step-00000100.h5".
    std::string path_of(int64_t step) const;
    /// The file of the weights alone: "FOLDER/model-00000100.h5".
    std::string model_path_of(int64_t step) const;
    std::vector<StepFile> list() const { return list_checkpoints(path_); }

    /// After the checkpoint of this step was published. Files of later steps are renamed, since they are of a
    /// branch that the run left, or damaged. Returns the files and folders that keep_latest no longer allows,
    /// and parts of checkpoints that no file names any more: for remove_all(), in this order.
    std::vector<std::string> retire(int64_t step) const;
    /// Removes what runs that were killed left of their last save. No save may be under way.
    void remove_unfinished() const;

private:
    std::string path_;
    int64_t keep_latest_;
    CheckpointWriter writer_;
};

}  // namespace coeus
