// SPDX-License-Identifier: Apache-2.0
// Saving at once, and what becomes of the files of other steps.
#include "checkpoint_file.hpp"
#include "checkpoint_parts.hpp"
#include "coeus/base/clock.hpp"
#include "coeus/base/text.hpp"
#include "coeus/comm/together.hpp"

#include <filesystem>

namespace coeus {

namespace fs = std::filesystem;
using namespace checkpoint_format;

namespace {

/// What a killed run left behind.
std::vector<std::string> unfinished_files(const std::string& folder) {
    std::error_code ignored;
    std::vector<std::string> all = unlinked_parts(folder);
    for (const fs::path& entry : entries_of(folder, ignored))
        if (entry.string().ends_with(".h5.part")) all.push_back(entry);
    return all;
}

/// "NAME", or where that is taken "NAME.1" and so on.
std::string free_name(const std::string& name) {
    std::error_code ignored;
    std::string free = name;
    for (int number = 1; fs::exists(free, ignored); ++number) free = fmt::format("{}.{}", name, number);
    return free;
}

/// Files of later steps are of a branch that was left by checkpoint.load_step, or damaged: renamed, so that a
/// resume takes this branch.
void set_aside_later(const std::string& folder, int64_t step) {
    for (const StepFile& file : list_checkpoints(folder)) {
        if (file.step <= step) continue;
        std::error_code status;
        const std::string aside = free_name(file.path + ".abandoned");
        fs::rename(file.path, aside, status);
        log::warn("{} is of a later step than the one saved now: {}", file.path,
                  status ? "it cannot be renamed: " + status.message() : "renamed to " + aside);
    }
}

std::vector<std::string> old_files(const std::string& folder, int64_t keep_latest) {
    std::vector<std::string> old;
    if (keep_latest <= 0) return old;
    const std::vector<StepFile> all = list_checkpoints(folder);
    for (int64_t i = 0; i < int64_t(all.size()) - keep_latest; ++i) old.push_back(all[size_t(i)].path);
    return old;
}

}  // namespace

std::string remove_all(const std::vector<std::string>& paths) {
    std::vector<std::string> failures;
    for (const std::string& path : paths) {
        std::error_code status;
        fs::remove_all(path, status);
        if (status) failures.push_back(fmt::format("{} cannot be removed: {}", path, status.message()));
    }
    return join(failures, "; ");
}

void CheckpointFolder::remove_unfinished() const {
    if (ranks_.rank() == 0) remove_all(unfinished_files(folder_));
}

std::string CheckpointFolder::path_of(int64_t step) const {
    return (fs::path(folder_) / step_file_name(step)).string();
}

std::string CheckpointFolder::model_path_of(int64_t step) const {
    return (fs::path(folder_) / model_file_name(step)).string();
}

void CheckpointFolder::fail(const std::string& path, const std::string& reason) const {
    std::string standing;
    if (ranks_.rank() == 0)
        if (const std::vector<StepFile> all = list_checkpoints(folder_); !all.empty())
            standing = all.back().path;
    standing = broadcast_text(ranks_, standing);
    throw CollectiveError(fmt::format(
        "{} is not saved: {}; {}", path, reason,
        standing.empty() ? "there is no earlier checkpoint" : "the newest good checkpoint is " + standing));
}

CheckpointFolder::Saved CheckpointFolder::write(const std::string& path, const TrainRecord& train,
                                                const std::vector<CheckpointTensor>& tensors,
                                                std::optional<Dtype> dtype) const {
    std::optional<CheckpointFile> file;
    double own_seconds = 0;
    remove_unfinished();
    try {
        file.emplace(path, train, tensors, dtype, ranks_, files_);
        together(ranks_, [&] {
            const Timer timer;
            file->write(tensors);
            own_seconds = timer.seconds();
        });
        file->publish();
    } catch (const std::exception& error) {
        if (file && ranks_.rank() == 0) file->discard();
        fail(path, error.what());
    }
    return {path, file->bytes(), own_seconds};
}

std::vector<std::string> CheckpointFolder::saved(int64_t step) const {
    if (ranks_.rank() != 0) return {};
    set_aside_later(folder_, step);
    std::vector<std::string> gone = old_files(folder_, keep_latest_);
    // a file goes before its parts: what has a good name is whole
    const std::vector<std::string> parts = unlinked_parts(folder_, gone);
    gone.insert(gone.end(), parts.begin(), parts.end());
    return gone;
}

CheckpointFolder::Saved CheckpointFolder::save(const TrainRecord& train,
                                               const std::vector<CheckpointTensor>& tensors) const {
    Saved done = write(path_of(train.step), train, tensors, std::nullopt);
    if (const std::string failures = remove_all(saved(train.step)); !failures.empty())
        log::warn("{}", failures);
    return done;
}

CheckpointFolder::Saved CheckpointFolder::export_model(const TrainRecord& train,
                                                       const std::vector<CheckpointTensor>& tensors,
                                                       Dtype dtype) const {
    std::vector<CheckpointTensor> weights;
    for (const CheckpointTensor& tensor : tensors)
        if (tensor.path.starts_with("model/")) weights.push_back(tensor);
    Saved done = write(model_path_of(train.step), train, weights, dtype);
    if (ranks_.rank() == 0) remove_all(unlinked_parts(folder_));
    return done;
}

}  // namespace coeus
