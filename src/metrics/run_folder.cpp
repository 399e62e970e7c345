// SPDX-License-Identifier: Apache-2.0
#include "coeus/metrics/run_folder.hpp"

#include "coeus/base/error_text.hpp"
#include "coeus/base/log.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/telemetry_file.hpp"
#include "coeus/comm/together.hpp"

#include <unistd.h>

#include <cerrno>

namespace coeus {

namespace {

namespace fs = std::filesystem;

// ConfigError if this user may not write to a folder, SystemError if the system does not tell.
void require_permission_to_write(const char* option, const fs::path& folder) {
    if (patiently(folder.string(), [&] { return access(folder.c_str(), W_OK); }) == 0) return;
    const int code = errno;
    const std::string text =
        fmt::format("{}: cannot write to {}: {}", option, folder.string(), errno_text(code));
    if (may_pass(code)) throw SystemError(text);
    throw ConfigError("{}; choose a folder that you may write to", text);
}

void make_writable_folder(const char* option, const fs::path& folder) {
    std::error_code failed;
    make_folders_patiently(folder, failed);
    for (fs::path above = folder; failed && !above.empty() && above != above.parent_path();
         above = above.parent_path()) {
        if (exists_patiently(above) && !is_folder_patiently(above))
            throw ConfigError("{} = \"{}\": {} is a file; choose a folder", option, folder.string(),
                              above.string());
    }
    if (may_pass(failed.value()))
        throw SystemError(
            fmt::format("{}: cannot create the folder {}: {}", option, folder.string(), failed.message()));
    if (failed)
        throw ConfigError("{}: cannot create the folder {}: {}; choose a folder that you may write to",
                          option, folder.string(), failed.message());
    require_permission_to_write(option, folder);
}

// ConfigError if make_writable_folder() would refuse this folder. Makes nothing.
void require_makable_folder(const char* option, const fs::path& folder) {
    fs::path above = fs::absolute(folder).lexically_normal();
    while (!exists_patiently(above) && above.has_relative_path()) above = above.parent_path();
    if (!is_folder_patiently(above))
        throw ConfigError("{} = \"{}\": {} is a file; choose a folder", option, folder.string(),
                          above.string());
    require_permission_to_write(option, above);
}

// Calls visit(option, folder) for all folders to which the run will write. An absolute path is not below
// `root`.
template <class Visit>
void each_folder(const fs::path& root, const Config& config, Visit&& visit) {
    visit("job.dump_folder", root);
    visit("job.dump_folder", root / "log");
    visit("comm.save_traces_folder", root / config.comm.save_traces_folder);
    if (config.checkpoint.enable && !config.checkpoint.load_only)
        visit("checkpoint.folder", root / config.checkpoint.folder);
    if (config.metrics.enable_tensorboard)
        visit("metrics.save_tb_folder", root / config.metrics.save_tb_folder);
    if (config.profiling.enable_profiling)
        visit("profiling.save_traces_folder", root / config.profiling.save_traces_folder);
    if (config.profiling.enable_memory_snapshot)
        visit("profiling.save_memory_snapshot_folder", root / config.profiling.save_memory_snapshot_folder);
    if (const std::string& file = config.job.save_config_file; !file.empty())
        visit("job.save_config_file", (root / file).parent_path());
}

void require_no_folder_in_place_of_deck(const fs::path& root, const std::string& file) {
    if (!file.empty() && is_folder_patiently(root / file))
        throw ConfigError("job.save_config_file = \"{}\": {} is a folder; give the name of a file", file,
                          (root / file).string());
}

// Makes all folders, so that a problem is found now.
void make_folders(const fs::path& root, const Config& config) {
    each_folder(root, config, make_writable_folder);
    require_no_folder_in_place_of_deck(root, config.job.save_config_file);
}

// The files that a run writes to its folder, except logs, checkpoints and token files. metrics.jsonl is last:
// while it is in its place, the other files belong to the same run.
std::vector<fs::path> files_of_a_run(const Config& config) {
    std::vector<fs::path> names = {"expert_loads.jsonl", samples_file_name, evaluation_file,
                                   "goodput.jsonl",      "deck.toml",       "report.html"};
    for (const std::string& name : {config.metrics.save_tb_folder, config.profiling.save_traces_folder,
                                    config.profiling.save_memory_snapshot_folder}) {
        // a folder with an absolute path may contain files of other runs
        const fs::path folder = fs::path(name).lexically_normal();
        if (folder.is_relative() && folder != ".") names.push_back(folder);
    }
    names.push_back("metrics.jsonl");
    return names;
}

}  // namespace

void require_writable_folders(const Config& config) {
    const fs::path root = config.job.dump_folder;
    each_folder(root, config, require_makable_folder);
    require_no_folder_in_place_of_deck(root, config.job.save_config_file);
}

RunFolder::RunFolder(const Config& config, const Communicator& world, const std::function<void()>& own)
    : root_(config.job.dump_folder),
      checkpoint_folder_(config.checkpoint.folder),
      memory_snapshot_folder_(config.profiling.save_memory_snapshot_folder) {
    on_first_rank(world, [&] { make_folders(root_, config); });
    own();
    if (const Config::Metrics& metrics = config.metrics; metrics.enable_tensorboard) {
        const fs::path folder = root_ / metrics.save_tb_folder;
        if (metrics.save_for_all_ranks)
            tensorboard_folder_ = folder / fmt::format("rank_{}", world.rank());
        else if (world.rank() == 0)
            tensorboard_folder_ = folder;
    }
    const std::vector<int> shown(config.log.ranks.begin(), config.log.ranks.end());
    together(world, [&] {
        log::init({.rank = world.rank(),
                   .ranks = shown,
                   .file = (root_ / "log" / fmt::format("rank_{}.log", world.rank())).string(),
                   .color = !config.metrics.disable_color_printing,
                   .quiet = config.log.quiet});
    });
}

void RunFolder::write_deck(const Config& config) const {
    const std::string text = deck_text(config);
    write_whole_file(root_ / "deck.toml", text);
    if (!config.job.save_config_file.empty()) write_whole_file(root_ / config.job.save_config_file, text);
}

std::optional<fs::path> RunFolder::put_earlier_run_aside(const Config& config, bool resumes) const {
    const fs::path begun = root_ / "earlier.part";
    const auto trained = [&] {
        return is_file_patiently(metrics_file()) && size_patiently(metrics_file()) > 0;
    };
    const auto move = [](const fs::path& from, const fs::path& to) {
        std::error_code failed;
        make_folders_patiently(to.parent_path(), failed);
        if (failed || patiently(from.string(), [&] { return rename(from.c_str(), to.c_str()); }) != 0) {
            const int reason = failed ? failed.value() : errno;
            fail_at_path(
                fmt::format("{} cannot be moved to {}: {}", from.string(), to.string(), errno_text(reason)),
                reason);
        }
    };
    try {
        if (!resumes && trained())
            for (const fs::path& name : files_of_a_run(config)) {
                // a folder that was moved before may exist again, as an empty folder of this start
                if (!exists_patiently(root_ / name) || exists_patiently(begun / name)) continue;
                move(root_ / name, begun / name);
            }
        if (!exists_patiently(begun)) return std::nullopt;
        int number = 1;
        while (exists_patiently(root_ / fmt::format("earlier_{}", number))) ++number;
        const fs::path aside = root_ / fmt::format("earlier_{}", number);
        move(begun, aside);
        return aside;
    } catch (const SystemError& failure) {
        throw SystemError(fmt::format("cannot move the files of the earlier run aside: {}", failure.what()));
    }
}

}  // namespace coeus
