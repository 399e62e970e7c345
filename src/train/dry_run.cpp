// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/dry_run.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/log.hpp"
#include "coeus/base/text.hpp"
#include "coeus/device/cpu.hpp"
#include "coeus/device/device.hpp"
#include "coeus/plan/gpu_models.hpp"
#include "coeus/pretrained/initial_weights.hpp"
#include "coeus/pretrained/model_source.hpp"
#include "coeus/train/describe_run.hpp"
#include "coeus/train/run_options.hpp"
#include "coeus/train/training_data.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>

namespace coeus {

namespace {

constexpr const char* memory_not_known = "whose memory is not known";

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
           line.find("a run would be refused. ") != std::string::npos;
}

}  // namespace

PlannedDevice planned_device(const CommandLine& command_line, Backend backend) {
    const bool cpu = backend == Backend::cpu;
    if (command_line.memory_bytes > 0)
        return {cpu ? "a rank on CPUs" : "a GPU", command_line.memory_bytes, false};
    if (!command_line.gpu.empty()) {
        const GpuModel& gpu = gpu_model(command_line.gpu);
        return {"an NVIDIA " + gpu.title, gpu.memory_bytes, false};
    }
    if (cpu) return {"the CPUs of this host", memory_limit_bytes(), true};
    if (visible_gpus() == 0) return {"a GPU", std::nullopt, false};
    const auto gpu = open_gpu(0);
    return {"the GPU of this host, " + gpu->name(), gpu->memory_bytes(), true};
}

std::string PlannedDevice::text() const {
    return memory_bytes
               ? fmt::format("Planned for {} with {}", title, bytes_text(double(*memory_bytes)))
               : fmt::format("Planned for {} {}: --gpu NAME or --memory SIZE compares the plan with it",
                             title, memory_not_known);
}

bool advice_holds(const Config& config, const DecoderConfig& model, const Alternative& advice) {
    try {
        const Config changed = with_settings(config, advice.says);
        const EngineOptions options =
            engine_options(changed, model, mesh_shape(changed, advice.options.mesh.ranks()),
                           advice.options.rank, advice.options.threads);
        const auto promised = plans_of_stages(model, advice.options), kept = plans_of_stages(model, options);
        return std::ranges::equal(promised, kept, [](const MemoryPlan& a, const MemoryPlan& b) {
            return b.total() <= a.total() && b.total(MemoryPlace::host) <= a.total(MemoryPlace::host);
        });
    } catch (const ConfigError&) {
        return false;
    }
}

std::vector<std::string> advice_on_memory(const Config& config, const Engine& engine,
                                          const PlannedDevice& device) {
    if (!device.memory_bytes) return {};
    const DecoderConfig& model = engine.decoder().config();
    const int64_t limit = *device.memory_bytes;
    const auto holds = [&](const Alternative& advice) { return advice_holds(config, model, advice); };
    if (std::ranges::any_of(plans_of_stages(model, engine.options()),
                            [&](const MemoryPlan& plan) { return plan.total() > limit; }))
        return {fmt::format(
            "Notice: a rank does not fit into the memory of {}: a run would be refused. {}", device.title,
            memory_advice(model, engine.options(), limit,
                          device.is_here ? memory_limit_bytes() : std::numeric_limits<int64_t>::max(),
                          holds))};
    const std::string spare = spare_memory_advice(model, engine.options(), limit, holds);
    return spare.empty() ? std::vector<std::string>() : std::vector{spare};
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
    const PlannedDevice device = planned_device(command_line, engine.options().backend);
    lines.push_back(device.text());
    add(describe_run(config, mesh, engine, device.memory_bytes));
    if (config.checkpoint.enable && !config.checkpoint.load_only)
        lines.push_back(
            fmt::format("A checkpoint takes {} on the disk, and {} are kept at once",
                        bytes_text(double(engine.decoder().parameters().full_state_bytes())),
                        config.checkpoint.keep_latest_k == 0
                            ? "all (checkpoint.keep_latest_k = 0)"
                            : fmt::format("checkpoint.keep_latest_k = {}", config.checkpoint.keep_latest_k)));
    add(notices);
    add(absent_files(config));
    if (const std::string notice = unused_weights_notice(config); !notice.empty()) lines.push_back(notice);
    if (!config.training.shuffle.value_or(true)) lines.push_back(unshuffled_notice);
    add(advice_on_memory(config, engine, device));
    return lines;
}

int dry_run(const CommandLine& command_line, int world_size) {
    const int ranks = command_line.ranks > 0 ? command_line.ranks : world_size;
    int64_t reasons = 0;
    bool memory_known = true;
    if (command_line.config.job.print_config)
        log::info("The effective deck:\n{}", deck_text(command_line.config));
    for (const std::string& line : dry_run_lines(command_line, ranks)) {
        const bool refused = says_refused(line);
        reasons += refused ? 1 : 0;
        memory_known = memory_known && line.find(memory_not_known) == std::string::npos;
        log::write(refused ? log::Level::warn : log::Level::info, line);
    }
    if (reasons == 0)
        log::info("Dry run: deck and mesh are valid; {}nothing was run",
                  memory_known ? "" : "whether a rank fits into its GPU is not known; ");
    else
        log::warn(
            "Dry run: deck and mesh are valid, but a run would be refused: {} reason{} above; nothing was "
            "run",
            reasons, reasons == 1 ? "" : "s");
    return command_line.strict && reasons > 0 ? 2 : 0;
}

}  // namespace coeus
