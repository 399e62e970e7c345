// SPDX-License-Identifier: Apache-2.0
#include "coeus/session/run_length.hpp"

#include "coeus/base/text.hpp"
#include "coeus/predict/machine_file.hpp"
#include "coeus/predict/roofline.hpp"
#include "coeus/session/product_choice.hpp"

#include <algorithm>
#include <utility>

namespace coeus {

namespace {

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

// Throws ConfigError if there is no roofline.
Roofline roofline_of(const PlannedRun& planned, const MachineFile& machine) {
    const Config& config = planned.command_line.config;
    const EngineOptions& options = planned.engine.options();
    return roofline_of_slowest(planned.model, options, machine,
                               planned_order(machine, options, config.comm.max_ctas),
                               multiplies_in_tf32(config, options));
}

}  // namespace

PlannedSpeed planned_speed(const PlannedRun& planned) {
    const EngineOptions& options = planned.engine.options();
    if (options.machine.backend != Backend::cuda || planned.command_line.gpu.empty()) return {};
    const MachineFile& machine = machine_of_gpu(planned.command_line.gpu);
    try {
        const Roofline roofline = roofline_of(planned, machine);
        return {roofline.step(), roofline.text(machine, options.mesh)};
    } catch (const ConfigError& error) {
        return {0, fmt::format("No roofline: {}", error.what())};
    }
}

std::string run_length(const PlannedRun& planned, double step_seconds) {
    const Config& config = planned.command_line.config;
    const EngineOptions& options = planned.engine.options();
    const auto state_bytes = double(planned.engine.model().parameters().full_state_bytes());
    const int64_t steps = config.training.steps, ranks = options.mesh.ranks();
    const double tokens = double(options.step_sequences()) * double(config.training.seq_len);
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
                        bytes_text(state_bytes));
    if (kept < made)
        text += kept == 1 ? ", of which the newest is kept"
                          : fmt::format(", of which the newest {} are kept", kept);
    return text + fmt::format(" = {}", bytes_text(double(kept) * state_bytes));
}

}  // namespace coeus
