// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/dry_run.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/log.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/telemetry_file.hpp"
#include "coeus/base/text.hpp"
#include "coeus/device/cpu.hpp"
#include "coeus/device/device.hpp"
#include "coeus/file/host_error.hpp"
#include "coeus/file/hub_name.hpp"
#include "coeus/file/raw_file.hpp"
#include "coeus/io/checkpoint.hpp"
#include "coeus/metrics/run_folder.hpp"
#include "coeus/predict/machine_file.hpp"
#include "coeus/predict/roofline.hpp"
#include "coeus/pretrained/initial_weights.hpp"
#include "coeus/pretrained/model_source.hpp"
#include "coeus/setup/chunk_choice.hpp"
#include "coeus/setup/describe_quantized.hpp"
#include "coeus/setup/describe_run.hpp"
#include "coeus/setup/product_choice.hpp"
#include "coeus/setup/quantize_checks.hpp"
#include "coeus/setup/run_options.hpp"
#include "coeus/train/resume.hpp"
#include "coeus/train/training_data.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <utility>

namespace coeus {

namespace {

using enum PlanLine::Verdict;

std::string notice_on_this_host(const std::string& error) {
    return fmt::format("{} (on this host)", error);
}

// Notices on files that the deck names and this host does not have: a deck may be checked on another machine
// than it runs on.
std::vector<std::string> absent_files(const Config& config) {
    std::vector<std::string> notices;
    const auto look = [&](const char* option, const std::string& path) {
        std::string problem;
        try {
            if (path.empty() || leads_somewhere(path)) return;
            problem = "this file or folder does not exist here; a run needs it" + download_hint(path);
        } catch (const std::runtime_error& error) {
            problem = notice_on_this_host(error.what());
        }
        notices.push_back(fmt::format("{} = \"{}\": {}", option, path, problem));
    };
    for (const std::string& path : config.training.dataset_path) look("training.dataset_path", path);
    if (config.validation.enable)
        for (const std::string& path : config.validation.dataset_path) look("validation.dataset_path", path);
    look("checkpoint.initial_load_path", config.checkpoint.initial_load_path);
    if (config.model.hf_assets_path != Config().model.hf_assets_path)
        look("model.hf_assets_path", config.model.hf_assets_path);
    return notices;
}

constexpr const char* real_run_refuses = " (a real run refuses this)";

// Path of the weights from which a run with this deck starts; "" if it resumes or starts from random weights.
std::string weights_at_start(const Config& config) {
    std::error_code unlisted;
    const auto folder = std::filesystem::path(config.job.dump_folder) / config.checkpoint.folder;
    // a folder that cannot be listed may have checkpoints; refused_on_this_host() reports it
    const bool resumes =
        config.checkpoint.enable && (!list_checkpoints(folder.string(), unlisted).empty() || unlisted);
    return resumes ? "" : initial_weights_path(config);
}

// Why a run would be refused before its first step because of these weights, as far as they are here.
std::vector<PlanLine> refused_weights(const Config& config, const DecoderConfig& model,
                                      const std::string& weights) {
    try {
        if (weights.empty() || !leads_somewhere(weights)) return {};
        if (config.checkpoint.initial_load_model_only)
            require_weights_of(config, model);
        else
            Resume::require_possible(config, model);
    } catch (const std::runtime_error& error) {
        if (is_of_this_host(error)) return {{notice_on_this_host(error.what()), refused_here}};
        return {{error.what() + std::string(real_run_refuses), refused}};
    }
    return {};
}

// Why a run on this host would be refused: its folder, and what is in it. A run elsewhere has another one.
std::vector<std::string> refused_on_this_host(const Config& config, const DecoderConfig& model,
                                              const std::string& weights) {
    std::vector<std::string> reasons;
    const auto attempt = [&](const auto& check) {
        try {
            check();
        } catch (const std::runtime_error& error) {
            reasons.push_back(notice_on_this_host(error.what()));
        }
    };
    attempt([&] { require_writable_folders(config); });
    attempt([&] {
        if (const std::string missing = Resume::missing_step(config); !missing.empty())
            reasons.push_back(fmt::format("{} (a run needs it)", missing));
        if (weights.empty()) Resume::require_possible(config, model);
    });
    return reasons;
}

// "812 ms", "12.3 s"
std::string step_time_text(double seconds) {
    return seconds < 1 ? fmt::format("{:.3g} ms", 1e3 * seconds) : fmt::format("{:.3g} s", seconds);
}

// "262 million"
std::string rounded_count(double count) {
    constexpr std::pair<double, const char*> words[] = {
        {1e12, "trillion"}, {1e9, "billion"}, {1e6, "million"}, {1e3, "thousand"}};
    for (const auto& [one, word] : words)
        if (count >= one) return fmt::format("{:.3g} {}", count / one, word);
    return fmt::format("{:.0f}", count);
}

// `options` are those of the memory plan, which is without graphs of several ranks. Throws ConfigError if
// there is no roofline.
Roofline planned_roofline(const Config& config, const DecoderConfig& model, EngineOptions options,
                          const MachineFile& machine) {
    options.graphs = !config.training.disable_cuda_graphs && (options.mesh.ranks() == 1 || options.nccl);
    return roofline_of_slowest(model, options, machine, planned_order(machine, options, config.comm.max_ctas),
                               multiplies_in_tf32(config, options));
}

// What the whole run takes: time by the roofline (0: not known), tokens, disk.
std::string run_length(const Config& config, const EngineOptions& options, double step_seconds,
                       int64_t state_bytes) {
    const int64_t steps = config.training.steps, ranks = options.mesh.ranks();
    const double tokens = double(config.training.local_batch_size) * double(options.mesh.size(axis::dp)) *
                          double(options.accumulation) * double(config.training.seq_len);
    std::string text = fmt::format("Run: {} {}", with_commas(steps), steps == 1 ? "step" : "steps");
    if (const double seconds = double(steps) * step_seconds; seconds > 0)
        text += fmt::format(" x {} = {}, {:.3g} GPU-hours by the roofline", step_time_text(step_seconds),
                            duration_text(seconds), seconds * double(ranks) / 3600);
    text += fmt::format(", {} tokens", rounded_count(double(steps) * tokens));
    const Config::Checkpoint& saves = config.checkpoint;
    if (!saves.enable || saves.load_only) return text;
    const int64_t made = div_ceil(steps, saves.interval) +
                         (saves.enable_first_step_checkpoint && saves.interval > 1 && steps > 1),
                  kept = saves.keep_latest_k == 0 ? made : std::min(made, saves.keep_latest_k);
    text += fmt::format("; {} {} of {}", with_commas(made), made == 1 ? "checkpoint" : "checkpoints",
                        bytes_text(double(state_bytes)));
    if (kept < made)
        text += kept == 1 ? ", of which the newest is kept"
                          : fmt::format(", of which the newest {} are kept", kept);
    return text + fmt::format(" = {}", bytes_text(double(kept) * double(state_bytes)));
}

}  // namespace

PlannedDevice planned_device(const CommandLine& command_line, Backend backend) {
    const bool cpu = backend == Backend::cpu;
    if (command_line.memory_bytes > 0)
        return {cpu ? "a rank on CPUs" : "a GPU", command_line.memory_bytes, false};
    if (!command_line.gpu.empty()) {
        const GpuModel& gpu = *machine_of_gpu(command_line.gpu).gpu;
        return {"an NVIDIA " + gpu.title, gpu.memory_bytes, false, gpu.capability};
    }
    if (cpu) return {"the CPUs of this host", memory_limit_bytes(), true};
    if (visible_gpus() == 0) return {"a GPU", std::nullopt, false};
    const auto gpu = open_gpu(0);
    return {"the GPU of this host, " + gpu->name(), gpu->memory_bytes(), true, gpu->architecture()};
}

std::string PlannedDevice::text() const {
    return memory_bytes
               ? fmt::format("Planned for {} with {}", title, bytes_text(double(*memory_bytes)))
               : fmt::format(
                     "Planned for {} whose memory is not known: give --gpu NAME or --memory SIZE to compare "
                     "the plan with it",
                     title);
}

bool advice_holds(const Config& config, const DecoderConfig& model, const Alternative& advice) {
    try {
        const Config changed = with_settings(config, advice.says);
        EngineOptions options =
            engine_options(changed, model, mesh_shape(changed, advice.options.mesh.ranks()),
                           advice.options.rank, advice.options.threads);
        options.architecture = advice.options.architecture;
        options.chunk_bytes = advice.options.chunk_bytes;
        const auto promised = plans_of_stages(model, advice.options), kept = plans_of_stages(model, options);
        return std::ranges::equal(promised, kept, [](const MemoryPlan& a, const MemoryPlan& b) {
            return b.total() <= a.total() && b.total(MemoryPlace::host) <= a.total(MemoryPlace::host);
        });
    } catch (const ConfigError&) {
        return false;
    }
}

std::vector<PlanLine> advice_on_memory(const Config& config, const Engine& engine,
                                       const PlannedDevice& device) {
    if (!device.memory_bytes) return {};
    const DecoderConfig& model = engine.decoder().config();
    const int64_t limit = *device.memory_bytes;
    const auto holds = [&](const Alternative& advice) { return advice_holds(config, model, advice); };
    if (std::ranges::any_of(plans_of_stages(model, engine.options()),
                            [&](const MemoryPlan& plan) { return plan.total() > limit; }))
        return {{fmt::format(
                     "a rank does not fit into the memory of {}: a run would be refused. {}", device.title,
                     memory_advice(
                         model, engine.options(), limit,
                         device.is_here ? memory_limit_bytes() : std::numeric_limits<int64_t>::max(), holds)),
                 device.is_here ? refused_here : refused}};
    const std::string spare = spare_memory_advice(model, engine.options(), limit, holds);
    return spare.empty() ? std::vector<PlanLine>() : std::vector{PlanLine{spare}};
}

std::vector<PlanLine> dry_run_lines(const CommandLine& command_line, int ranks) {
    const Config& config = command_line.config;
    std::vector<PlanLine> lines;
    const auto add = [&](const std::vector<std::string>& more, PlanLine::Verdict verdict = fine) {
        for (const std::string& text : more) lines.push_back({text, verdict});
    };
    add(command_line.notices);
    add(command_line.refusals, refused);
    add(command_line.absent, refused_here);
    const MeshShape mesh = mesh_shape(config, ranks);
    const DecoderConfig model = model_from_deck(config);
    std::vector<std::string> notices;
    schedule_from_deck(config, &notices);
    const CpuShare cpu = share_of_cpu(int(config.training.threads), 0, 1);
    EngineOptions options = engine_options(config, model, mesh, 0, cpu.threads);
    const PlannedDevice device = planned_device(command_line, options.backend);
    require_8_bit_products(options, device.title, device.capability);
    options.architecture = device.capability;
    const std::optional<int64_t> of_checkpoint = chunks_of_checkpoint(config);
    options = with_largest_chunks(model, options, device.memory_bytes, of_checkpoint);
    const Engine engine(model, options);
    add({device.text()}, device.memory_bytes ? fine : unknown);
    if (device.is_here && options.backend == Backend::cpu && ranks > cpu.machine_cores)
        add({fmt::format(
            "Hint: {} ranks on the CPUs of this host, which has {} cores; for a cluster with GPUs, "
            "plan with --gpu NAME, such as --gpu h100",
            with_commas(ranks), cpu.machine_cores)});
    add(describe_run(config, mesh, engine, device.memory_bytes));
    if (std::string notice = notice_on_chunks(config, engine.options(), of_checkpoint); !notice.empty())
        add({notice});
    add(product_notices(config, mesh, options));
    if (!config.model.print_after_conversion) add(describe_linear_layers(engine));
    add(idle_converters(engine), doubtful);
    if (config.checkpoint.enable && !config.checkpoint.load_only)
        add({fmt::format("A checkpoint takes {} on disk; {}",
                         bytes_text(double(engine.decoder().parameters().full_state_bytes())),
                         config.checkpoint.keep_latest_k == 0
                             ? "all are kept (checkpoint.keep_latest_k = 0)"
                             : fmt::format("the newest {} are kept (checkpoint.keep_latest_k)",
                                           config.checkpoint.keep_latest_k))});
    add(notices);
    add(absent_files(config), refused_here);
    const std::string weights = weights_at_start(config);
    const DataCheck data = check_data(config, model.vocab, weights);
    for (const std::string& error : data.errors) add({error + real_run_refuses}, refused);
    for (const std::string& error : data.failed) add({notice_on_this_host(error)}, refused_here);
    std::ranges::copy(refused_weights(config, model, weights), std::back_inserter(lines));
    add(refused_on_this_host(config, model, weights), refused_here);
    // if the deck names the folder, absent_files() has reported it
    if (config.model.tokenizer() == Config().model.tokenizer() || !config.model.tokenizer_path.empty())
        add(data.absent, refused_here);
    // warnings of a run, which a list of lines has to mark
    for (const std::string& notice : data.notices) add({"Notice: " + notice});
    if (const std::string notice = unused_weights_notice(config); !notice.empty()) add({"Notice: " + notice});
    if (!config.training.shuffle.value_or(true)) add({unshuffled_notice});
    double step_seconds = 0;
    if (options.backend == Backend::cuda && !command_line.gpu.empty()) {
        const MachineFile& machine = machine_of_gpu(command_line.gpu);
        try {
            const Roofline roofline = planned_roofline(config, model, options, machine);
            step_seconds = roofline.step();
            add({roofline.text(machine, options.mesh)});
        } catch (const ConfigError& error) {
            add({fmt::format("No roofline: {}", error.what())});
        }
    }
    const int64_t state_bytes = engine.decoder().parameters().full_state_bytes();
    lines.insert(lines.begin(), PlanLine{run_length(config, options, step_seconds, state_bytes), fine});
    std::ranges::copy(advice_on_memory(config, engine, device), std::back_inserter(lines));
    return lines;
}

int dry_run(const CommandLine& command_line, int world_size) {
    const Config& config = command_line.config;
    const int ranks = command_line.ranks > 0 ? command_line.ranks : world_size;
    if (config.job.print_config)
        log::info("The effective deck:\n{}", deck_text(config, command_line.origins));
    const std::vector<PlanLine> lines = dry_run_lines(command_line, ranks);
    for (const PlanLine& line : lines)
        log::write(line.verdict == fine || line.verdict == unknown ? log::Level::info : log::Level::warn,
                   line.text);
    const auto count = [&](PlanLine::Verdict verdict) {
        return std::ranges::count(lines, verdict, &PlanLine::verdict);
    };
    const int64_t refusals = count(refused), reasons = refusals + count(refused_here);
    if (const std::string& name = config.job.save_config_file; !name.empty()) {
        const auto file = std::filesystem::path(config.job.dump_folder) / name;
        std::error_code failed;
        if (exists_patiently(file))
            throw ConfigError(
                "job.save_config_file = \"{}\": {} already exists, and a dry run does not replace files; "
                "choose another name",
                name, file.string());
        std::filesystem::create_directories(file.parent_path(), failed);
        if (failed)
            throw ConfigError(
                "job.save_config_file: cannot create the folder {}: {}; choose a folder that you may write "
                "to",
                file.parent_path().string(), failed.message());
        write_whole_file(file, deck_text(config));
        log::info("Wrote the effective deck: {}", file.string());
    }
    if (reasons == 0)
        log::info("Dry run: deck and mesh are valid; {}nothing was run",
                  count(unknown) == 0 ? "" : "it is not known whether a rank fits into its GPU; ");
    else
        log::warn(
            "Dry run: deck and mesh are valid, but a run would be refused ({} reason{} above); nothing was "
            "run",
            reasons, reasons == 1 ? "" : "s");
    return refusals > 0 || (command_line.strict && reasons > 0) ? 2 : 0;
}

}  // namespace coeus
