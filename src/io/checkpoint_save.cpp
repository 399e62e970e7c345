// SPDX-License-Identifier: Apache-2.0
// Saving at once, and what becomes of the files of other steps.
#include "checkpoint_file.hpp"
#include "checkpoint_parts.hpp"
#include "coeus/comm/together.hpp"

#include <filesystem>

namespace coeus {

namespace fs = std::filesystem;
using namespace checkpoint_format;

namespace {

/// What a killed run left behind.
void remove_unfinished_files(const std::string& folder) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder, ignored))
        if (entry.path().string().ends_with(".h5.part")) fs::remove(entry.path(), ignored);
    remove_unlinked_parts(folder);
}

/// Files of later steps are of a branch that was left by checkpoint.load_step, or damaged: renamed, so that a
/// resume takes this branch.
void set_aside_later(const std::string& folder, int64_t step) {
    for (const StepFile& file : list_checkpoints(folder)) {
        if (file.step <= step) continue;
        std::error_code status;
        fs::rename(file.path, file.path + ".abandoned", status);
        log::warn("{} is of a later step than the one saved now: {}", file.path,
                  status ? "it cannot be renamed: " + status.message() : "renamed to *.abandoned");
    }
}

void remove_old(const std::string& folder, int64_t keep_latest) {
    if (keep_latest <= 0) return;
    const std::vector<StepFile> all = list_checkpoints(folder);
    for (int64_t i = 0; i < int64_t(all.size()) - keep_latest; ++i) {
        std::error_code status;
        fs::remove(all[size_t(i)].path, status);
        if (status) log::warn("{} cannot be removed: {}", all[size_t(i)].path, status.message());
    }
}

}  // namespace

void Checkpoint::remove_unfinished() const {
    if (ranks_.rank() == 0) remove_unfinished_files(folder_);
}

std::string Checkpoint::path_of(int64_t step) const {
    return (fs::path(folder_) / step_file_name(step)).string();
}

void Checkpoint::fail(const std::string& path, const std::string& reason) const {
    std::string standing;
    if (ranks_.rank() == 0)
        if (const std::vector<StepFile> all = list_checkpoints(folder_); !all.empty())
            standing = all.back().path;
    standing = broadcast_text(ranks_, standing);
    throw CollectiveError(fmt::format(
        "{} is not saved: {}; {}", path, reason,
        standing.empty() ? "there is no earlier checkpoint" : "the newest good checkpoint is " + standing));
}

Checkpoint::Saved Checkpoint::write(const std::string& path, const TrainRecord& train,
                                    const std::vector<CheckpointTensor>& tensors,
                                    std::optional<Dtype> dtype) const {
    std::optional<CheckpointFile> file;
    remove_unfinished();
    try {
        file.emplace(path, train, tensors, dtype, ranks_, files_);
        together(ranks_, [&] { file->write(tensors); });
        file->publish();
    } catch (const std::exception& error) {
        if (file && ranks_.rank() == 0) file->discard();
        fail(path, error.what());
    }
    return {path, file->bytes()};
}

void Checkpoint::saved(int64_t step) const {
    if (ranks_.rank() != 0) return;
    set_aside_later(folder_, step);
    remove_old(folder_, keep_latest_);
    remove_unlinked_parts(folder_);
}

Checkpoint::Saved Checkpoint::save(const TrainRecord& train,
                                   const std::vector<CheckpointTensor>& tensors) const {
    Saved done = write(path_of(train.step), train, tensors, std::nullopt);
    saved(train.step);
    return done;
}

Checkpoint::Saved Checkpoint::export_model(const TrainRecord& train,
                                           const std::vector<CheckpointTensor>& tensors, Dtype dtype) const {
    std::vector<CheckpointTensor> weights;
    for (const CheckpointTensor& tensor : tensors)
        if (tensor.path.starts_with("model/")) weights.push_back(tensor);
    Saved done = write((fs::path(folder_) / model_file_name(train.step)).string(), train, weights, dtype);
    if (ranks_.rank() == 0) remove_unlinked_parts(folder_);
    return done;
}

}  // namespace coeus
