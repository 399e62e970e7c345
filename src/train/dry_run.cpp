// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/dry_run.hpp"

#include "coeus/base/log.hpp"
#include "coeus/base/text.hpp"
#include "coeus/device/cpu.hpp"
#include "coeus/engine/memory_advice.hpp"
#include "coeus/pretrained/model_source.hpp"
#include "coeus/train/describe_run.hpp"
#include "coeus/train/run_options.hpp"

#include <algorithm>
#include <filesystem>

namespace coeus {

namespace {

// What a deck names and this host does not have: a deck may be checked elsewhere than where it runs.
std::vector<std::string> absent_files(const Config& config) {
    std::vector<std::string> notices;
    const auto look = [&](const char* option, const std::string& path) {
        if (!path.empty() && !std::filesystem::exists(path))
            notices.push_back(
                fmt::format("Notice: {} = \"{}\": this file or folder does not exist here; a run needs it",
                            option, path));
    };
    for (const std::string& path : config.training.dataset_path) look("training.dataset_path", path);
    if (config.validation.enable)
        for (const std::string& path : config.validation.dataset_path) look("validation.dataset_path", path);
    look("checkpoint.initial_load_path", config.checkpoint.initial_load_path);
    if (config.model.hf_assets_path != Config().model.hf_assets_path)
        look("model.hf_assets_path", config.model.hf_assets_path);
    return notices;
}

// True for a line that says why a run would be refused: by the deck, for lack of memory, for an absent file.
bool says_refused(const std::string& line) {
    return line.ends_with("(a real run refuses this)") || line.ends_with("a run needs it") ||
           line.find("a run here would be refused. ") != std::string::npos;
}

}  // namespace

std::optional<int64_t> memory_limit_here(Backend backend) {
    if (backend == Backend::cpu) return memory_limit_bytes();
    return visible_gpus() > 0 ? std::optional(open_gpu(0)->memory_bytes()) : std::nullopt;
}

std::vector<std::string> dry_run_lines(const CommandLine& command_line, int ranks) {
    const Config& config = command_line.config;
    std::vector<std::string> lines = command_line.notices;
    const auto add = [&](const std::vector<std::string>& more) {
        lines.insert(lines.end(), more.begin(), more.end());
    };
    const MeshShape mesh = mesh_shape(config, ranks);
    const DecoderConfig model = model_from_deck(config);
    std::vector<std::string> notices;
    schedule_from_deck(config, &notices);
    const int threads = share_of_cpu(int(config.training.threads), 0, 1).threads;
    const Engine engine(model, engine_options(config, model, mesh, 0, threads));
    const std::optional<int64_t> limit = memory_limit_here(engine.options().backend);
    add(describe_run(config, mesh, engine, limit));
    if (config.checkpoint.enable && !config.checkpoint.load_only)
        lines.push_back(
            fmt::format("A checkpoint takes {} on the disk, and {} are kept at once",
                        bytes_text(double(engine.decoder().parameters().full_state_bytes())),
                        config.checkpoint.keep_latest_k == 0
                            ? "all (checkpoint.keep_latest_k = 0)"
                            : fmt::format("checkpoint.keep_latest_k = {}", config.checkpoint.keep_latest_k)));
    add(notices);
    add(absent_files(config));
    if (limit && std::ranges::any_of(plans_of_stages(model, engine.options()),
                                     [&](const MemoryPlan& plan) { return plan.total() > *limit; }))
        lines.push_back("Notice: a rank would not fit into the memory here; a run here would be refused. " +
                        memory_advice(model, engine.options(), *limit, memory_limit_bytes()));
    return lines;
}

void dry_run(const CommandLine& command_line, int world_size) {
    const int ranks = command_line.ranks > 0 ? command_line.ranks : world_size;
    int64_t reasons = 0;
    for (const std::string& line : dry_run_lines(command_line, ranks)) {
        const bool refused = says_refused(line);
        reasons += refused ? 1 : 0;
        log::write(refused ? log::Level::warn : log::Level::info, line);
    }
    if (reasons == 0)
        log::info("Dry run: deck and mesh are valid; nothing was run");
    else
        log::warn(
            "Dry run: deck and mesh are valid, but a run would be refused: {} reason{} above; nothing was "
            "run",
            reasons, reasons == 1 ? "" : "s");
}

}  // namespace coeus
