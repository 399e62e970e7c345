// SPDX-License-Identifier: Apache-2.0
#include "coeus/io/checkpoint_folder.hpp"

#include "checkpoint_parts.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/log.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/text.hpp"
#include "coeus/file/host_error.hpp"
#include "coeus/file/raw_file.hpp"
#include "coeus/file/toml.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <optional>

namespace coeus {

namespace fs = std::filesystem;
using namespace checkpoint_format;

namespace {

/// "NAME", or if that exists "NAME.1" and so on.
std::string free_name(const std::string& name) {
    std::string free = name;
    for (int number = 1; exists_patiently(free); ++number) free = fmt::format("{}.{}", name, number);
    return free;
}

/// False if another run has taken the folder while this one was suspended.
bool is_owned(const CheckpointWriter& writer) {
    try {
        writer.require_owned();
        return true;
    } catch (const SystemError&) {
        return false;
    }
}

/// Renames files of later steps, so that a resume takes this branch. They are damaged, or belong to a branch
/// that the run left by checkpoint.load_step. False if the files belong to another run by now.
bool set_aside_later(const std::vector<StepFile>& files, int64_t step, const CheckpointWriter& writer) {
    for (const StepFile& file : files) {
        if (file.step <= step) continue;
        // the run may have been suspended since it published its own file
        if (!is_owned(writer)) return false;
        const std::string aside = free_name(file.path + ".abandoned");
        const bool renamed =
            patiently(file.path, [&] { return std::rename(file.path.c_str(), aside.c_str()); }) == 0;
        log::warn("{} is from a later step than the checkpoint saved now: {}", file.path,
                  renamed ? "renamed to " + aside : "it cannot be renamed: " + errno_text(errno));
    }
    return true;
}

/// The files up to a step that are beyond the newest `keep_latest` of them.
std::vector<std::string> old_files(std::vector<StepFile> files, int64_t step, int64_t keep_latest) {
    std::vector<std::string> old;
    if (keep_latest <= 0) return old;
    // a later file that could not be renamed does not count as one of the newest
    std::erase_if(files, [&](const StepFile& file) { return file.step > step; });
    for (int64_t i = 0; i < int64_t(files.size()) - keep_latest; ++i) old.push_back(files[size_t(i)].path);
    return old;
}

/// The number in "<prefix>12345678<suffix>"; none if the name has another form.
std::optional<int64_t> step_in(std::string_view name, std::string_view prefix, std::string_view suffix) {
    if (name.size() < prefix.size() + suffix.size() || !name.starts_with(prefix) || !name.ends_with(suffix))
        return std::nullopt;
    const char *first = name.data() + prefix.size(), *last = name.data() + name.size() - suffix.size();
    int64_t step = 0;
    const auto [end, error] = std::from_chars(first, last, step);
    return error == std::errc() && end == last && step >= 0 ? std::optional(step) : std::nullopt;
}

bool is_id(std::string_view text) {
    return text.size() == 16 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// "step-00000001.h5" for "step-00000001.h5.5f0c31d27b9a64e8.part" or "step-00000001.h5.part" (written by
/// versions before 0.2); "" for other names.
std::string unfinished_name(const std::string& name) {
    if (!name.ends_with(".part")) return "";
    const fs::path rest = fs::path(name).stem();
    const std::string id = rest.extension().string();
    return id.starts_with(".") && is_id(id.substr(1)) ? rest.stem().string() : rest.string();
}

/// Files with names "<prefix>12345678<suffix>", oldest first. Folders are left out. A folder that does not
/// exist has none; `unlisted`: why one that does cannot be listed.
std::vector<StepFile> list_files(const std::string& folder, std::string_view prefix, std::string_view suffix,
                                 std::error_code& unlisted) {
    std::vector<StepFile> all;
    const std::vector<fs::path> entries = entries_of(folder, unlisted);
    if (unlisted == std::errc::no_such_file_or_directory) unlisted.clear();
    for (const fs::path& entry : entries) {
        std::error_code ignored;
        if (const auto step = step_in(entry.filename().string(), prefix, suffix);
            step && !fs::is_directory(entry, ignored))
            all.push_back({*step, entry.string()});
    }
    std::sort(all.begin(), all.end(), [](const StepFile& a, const StepFile& b) { return a.step < b.step; });
    return all;
}

/// Unfinished files that a killed run left. Other files in the folder, for example "other.h5.part", do not
/// belong to the run.
std::vector<std::string> unfinished_files(const std::string& folder) {
    std::error_code ignored;
    std::vector<std::string> all = unlinked_parts(folder);
    for (const fs::path& entry : entries_of(folder, ignored)) {
        const std::string name = unfinished_name(entry.filename().string());
        const bool of_a_run = step_in(name, "step-", ".h5") || step_in(name, "model-", ".h5");
        if (of_a_run && !fs::is_directory(entry, ignored)) all.push_back(entry.string());
    }
    return all;
}

std::string cannot_be_listed(const std::string& folder, const std::error_code& why) {
    return fmt::format("{} cannot be listed: {}", folder, why.message());
}

/// list_files(); ReadError if the folder is there and cannot be listed.
std::vector<StepFile> require_list(const std::string& folder, std::string_view prefix) {
    std::error_code unlisted;
    std::vector<StepFile> all = list_files(folder, prefix, ".h5", unlisted);
    if (unlisted) throw ReadError(cannot_be_listed(folder, unlisted));
    return all;
}

std::vector<StepFile> weights_in(const std::string& folder) {
    std::vector<StepFile> all = require_list(folder, "model-");
    for (const StepFile& file : list_checkpoints(folder)) all.push_back(file);
    return all;
}

}  // namespace

std::vector<StepFile> list_checkpoints(const std::string& folder) {
    return require_list(folder, "step-");
}

std::vector<StepFile> list_checkpoints(const std::string& folder, std::error_code& unlisted) {
    return list_files(folder, "step-", ".h5", unlisted);
}

std::string missing_step_error(const std::string& folder, int64_t step) {
    std::vector<std::string> steps;
    for (const StepFile& file : list_checkpoints(folder)) steps.push_back(std::to_string(file.step));
    return fmt::format(
        "checkpoint.load_step = {0}: there is no checkpoint of step {0} in {1}; existing steps: {2}", step,
        folder, steps.empty() ? "none" : join(steps, ", "));
}

std::string checkpoint_folder_of(const std::string& run) {
    const fs::path deck = fs::path(run) / "deck.toml";
    try {
        if (is_file_patiently(deck))
            for (const TomlEntry& entry : read_toml(deck))
                if (const auto* named = entry.value.as<std::string>();
                    named && entry.key == "checkpoint.folder")
                    return (fs::path(run) / *named).string();
    } catch (const ConfigError&) {
    }
    return "";
}

std::string newest_weights(const std::string& folder) {
    std::vector<StepFile> all = weights_in(folder);
    if (const std::string named = checkpoint_folder_of(folder); all.empty() && !named.empty())
        all = weights_in(named);
    // in a folder whose deck names none, or names a folder that was moved, they are one level below
    std::error_code unlisted;
    std::string failure;
    for (const fs::path& entry : entries_of(folder, unlisted)) {
        if (!all.empty()) break;
        try {
            if (is_folder_patiently(entry)) all = weights_in(entry.string());
        } catch (const SystemError& error) {
            failure = error.what();
        }
    }
    if (all.empty() && !failure.empty()) throw ReadError(failure);
    std::stable_sort(all.begin(), all.end(),
                     [](const StepFile& a, const StepFile& b) { return a.step < b.step; });
    for (auto file = all.rbegin(); file != all.rend(); ++file) {
        try {
            read_checkpoint_header(file->path);
            return file->path;
        } catch (const PermissionError&) {  // older weights would be others than the user asks for
            throw;
        } catch (const ConfigError& error) {
            log::warn("checkpoint skipped: {}", error.what());
        }
    }
    throw ConfigError("{} has no{} checkpoint (step-*.h5 or model-*.h5)", folder,
                      all.empty() ? "" : " intact");
}

std::string remove_all(const std::vector<std::string>& paths) {
    std::vector<std::string> failures;
    for (const std::string& path : paths) {
        std::error_code status;
        // without its parts, a file that could not be removed would be a damaged checkpoint
        if (!failures.empty() && status_patiently(path, status).type() != fs::file_type::regular &&
            checkpoint_format::is_linked(path))
            continue;
        fs::remove_all(path, status);
        if (status) failures.push_back(fmt::format("{} cannot be removed: {}", path, status.message()));
    }
    return join(failures, "; ");
}

std::string CheckpointFolder::path_of(int64_t step) const {
    return (fs::path(path_) / step_file_name(step)).string();
}

std::string CheckpointFolder::model_path_of(int64_t step) const {
    return (fs::path(path_) / model_file_name(step)).string();
}

std::vector<std::string> CheckpointFolder::retire(int64_t step) const {
    std::error_code unlisted;
    const std::vector<StepFile> files = list_checkpoints(path_, unlisted);
    if (unlisted) log::warn("{}: no checkpoint is removed at this save", cannot_be_listed(path_, unlisted));
    if (unlisted || !set_aside_later(files, step, writer_)) return {};
    std::vector<std::string> gone = old_files(files, step, keep_latest_);
    // a file is removed before its parts, so that it is never there without them
    const std::vector<std::string> parts = unlinked_parts(path_, gone);
    gone.insert(gone.end(), parts.begin(), parts.end());
    return gone;
}

std::string CheckpointFolder::newest_text(const char* found, const char* none) const {
    std::error_code unlisted;
    const std::vector<StepFile> files = list_checkpoints(path_, unlisted);
    if (unlisted && unlisted != std::errc::not_a_directory)  // a file has no checkpoints
        return cannot_be_listed(path_, unlisted) + ", so it is not known which checkpoints there are";
    return files.empty() ? none : found + files.back().path;
}

void CheckpointFolder::remove_unfinished() const {
    remove_all(unfinished_files(path_));
}

}  // namespace coeus
