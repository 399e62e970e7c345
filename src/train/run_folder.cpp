// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/run_folder.hpp"

#include "coeus/base/log.hpp"
#include "coeus/comm/together.hpp"

#include <unistd.h>

#include <cerrno>
#include <fstream>

namespace coeus {

namespace {

namespace fs = std::filesystem;

void make_writable_folder(const fs::path& folder) {
    std::error_code failed;
    fs::create_directories(folder, failed);
    if (failed)
        throw ConfigError("job.dump_folder: cannot make {}: {}; choose a folder you may write to",
                          folder.string(), failed.message());
    if (access(folder.c_str(), W_OK) != 0)
        throw ConfigError("job.dump_folder: cannot write to {}: {}; choose a folder you may write to",
                          folder.string(), errno_text(errno));
}

void write_text(const fs::path& file, const std::string& text) {
    std::ofstream out(file);
    if (!(out << text).flush())
        throw SystemError(fmt::format("cannot write {}: {}", file.string(), errno_text(errno)));
}

}  // namespace

RunFolder::RunFolder(const Config& config, const Communicator& world)
    : root_(config.job.dump_folder),
      checkpoint_folder_(config.checkpoint.folder),
      memory_snapshot_folder_(config.profiling.save_memory_snapshot_folder) {
    on_first_rank(world, [&] {
        make_writable_folder(root_);
        make_writable_folder(root_ / "log");
    });
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
    write_text(root_ / "deck.toml", text);
    if (!config.job.save_config_file.empty()) write_text(root_ / config.job.save_config_file, text);
}

}  // namespace coeus
