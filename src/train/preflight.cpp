// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/preflight.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/text.hpp"
#include "coeus/file/host_error.hpp"
#include "coeus/file/hub_name.hpp"
#include "coeus/file/raw_file.hpp"
#include "coeus/metrics/run_folder.hpp"
#include "coeus/pretrained/initial_weights.hpp"
#include "coeus/session/plan_findings.hpp"
#include "coeus/session/run_length.hpp"
#include "coeus/session/starting_point.hpp"
#include "coeus/setup/run_options.hpp"
#include "coeus/train/resume.hpp"
#include "coeus/train/workload.hpp"

#include <stdexcept>

namespace coeus {

namespace {

using Severity = Finding::Severity;
using Topic = Finding::Topic;

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

// Why a run would be refused before its first step because of these weights, as far as they are here.
void add_refused_weights(Findings& found, const Config& config, const ModelConfig& model,
                         const std::string& weights) {
    try {
        if (weights.empty() || !leads_somewhere(weights)) return;
        if (config.checkpoint.initial_load_model_only)
            require_weights_of(config, model);
        else
            Resume::require_possible(config, model);
    } catch (const std::runtime_error& error) {
        if (is_of_this_host(error))
            found.add(Topic::files, notice_on_this_host(error.what()), Severity::refusal_here);
        else
            found.add(Topic::files, error.what() + std::string(real_run_refuses), Severity::refusal);
    }
}

// Why a run on this host would be refused: its folder, and what is in it. A run elsewhere has another one.
std::vector<std::string> refused_on_this_host(const Config& config, const ModelConfig& model,
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

// What the deck says of checkpoints and of the learning rate.
void add_saves_and_schedule(Findings& found, const PlannedRun& planned) {
    const Config& config = planned.command_line.config;
    const Config::Checkpoint& saves = config.checkpoint;
    if (saves.enable && !saves.load_only)
        found.add(Topic::files,
                  fmt::format("A checkpoint takes {} on disk; {}",
                              bytes_text(double(planned.engine.model().parameters().full_state_bytes())),
                              saves.keep_latest_k == 0
                                  ? "all are kept (checkpoint.keep_latest_k = 0)"
                                  : fmt::format("the newest {} are kept (checkpoint.keep_latest_k)",
                                                saves.keep_latest_k)));
    std::vector<std::string> notices;
    schedule_from_deck(config, &notices);
    found.add(Topic::schedule, notices);
}

// What a start would find in the files that it reads, and in the folders that it writes to.
void add_files(Findings& found, const PlannedRun& planned) {
    const Config& config = planned.command_line.config;
    const ModelConfig& model = planned.model;
    found.add(Topic::files, absent_files(config), Severity::refusal_here);
    const std::string weights = weights_at_start(config);
    const DataCheck data = check_samples(config, model, weights);
    for (const std::string& error : data.errors)
        found.add(Topic::files, error + real_run_refuses, Severity::refusal);
    for (const std::string& error : data.failed)
        found.add(Topic::files, notice_on_this_host(error), Severity::refusal_here);
    add_refused_weights(found, config, model, weights);
    found.add(Topic::files, refused_on_this_host(config, model, weights), Severity::refusal_here);
    // if the deck names the folder, absent_files() has reported it
    if (config.model.tokenizer() == Config().model.tokenizer() || !config.model.tokenizer_path.empty())
        found.add(Topic::files, data.absent, Severity::refusal_here);
    // a run logs the data's notices and that on weights as warnings
    found.add(Topic::files, data.notices, Severity::notice);
    if (const std::string notice = unused_weights_notice(config); !notice.empty())
        found.add(Topic::files, notice, Severity::notice);
    if (!config.training.shuffle.value_or(true)) found.add(Topic::files, unshuffled_notice, Severity::notice);
}

}  // namespace

Findings preflight(const CommandLine& command_line, int ranks) {
    const PlannedRun planned(command_line, ranks);
    const PlannedSpeed speed = planned_speed(planned);
    Findings found;
    found.add(Topic::length, run_length(planned, speed.step_seconds));
    found.add(Topic::deck, command_line.notices);
    found.add(Topic::deck, command_line.refusals, Severity::refusal);
    found.add(Topic::deck, command_line.absent, Severity::refusal_here);
    found.add(plan_findings(planned));
    add_saves_and_schedule(found, planned);
    add_files(found, planned);
    if (!speed.text.empty()) found.add(Topic::speed, speed.text);
    found.add(memory_findings(planned));
    return found;
}

}  // namespace coeus
