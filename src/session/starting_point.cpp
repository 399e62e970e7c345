// SPDX-License-Identifier: Apache-2.0
#include "coeus/session/starting_point.hpp"

#include "coeus/comm/together.hpp"
#include "coeus/io/checkpoint.hpp"
#include "coeus/pretrained/initial_weights.hpp"
#include "coeus/setup/device_choice.hpp"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <system_error>

namespace coeus {

std::vector<std::string> checkpoints_to_continue(const Config& config) {
    const Config::Checkpoint& options = config.checkpoint;
    std::vector<std::string> paths;
    if (options.enable) {
        const auto folder = std::filesystem::path(config.job.dump_folder) / options.folder;
        for (const StepFile& file : list_checkpoints(folder.string()))
            if (options.load_step < 0 || file.step == options.load_step) paths.push_back(file.path);
        std::ranges::reverse(paths);
    }
    if (paths.empty() && !options.initial_load_path.empty() && !options.initial_load_model_only)
        paths.push_back(options.initial_load_path);
    return paths;
}

std::string weights_at_start(const Config& config) {
    std::error_code unlisted;
    const auto folder = std::filesystem::path(config.job.dump_folder) / config.checkpoint.folder;
    // a folder that cannot be listed may have checkpoints; what looks for them reports it
    const bool resumes =
        config.checkpoint.enable && (!list_checkpoints(folder.string(), unlisted).empty() || unlisted);
    return resumes ? "" : initial_weights_path(config);
}

std::optional<int64_t> chunks_of_checkpoint(const Config& config) {
    if (backend_from_deck(config) == Backend::cpu || config.kernels.logits_chunk_mib) return std::nullopt;
    for (const std::string& path : checkpoints_to_continue(config)) {
        try {
            const auto mib = logits_chunk_of_deck(read_checkpoint_header(path).train.deck);
            return mib ? std::optional(*mib << 20) : std::nullopt;
        } catch (const std::exception&) {
            continue;  // it is damaged, or is not there: loading it reports this
        }
    }
    return std::nullopt;
}

std::optional<int64_t> chunks_of_checkpoint(const Config& config, const Communicator& world) {
    int64_t bytes = 0;
    on_first_rank(world, [&] { bytes = chunks_of_checkpoint(config).value_or(0); });
    bytes = world.all_reduce(bytes, Reduce::max);
    return bytes > 0 ? std::optional(bytes) : std::nullopt;
}

}  // namespace coeus
