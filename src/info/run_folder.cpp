// SPDX-License-Identifier: Apache-2.0
// coeus info for a run's folder: its deck, its progress, its last losses and its checkpoints.
#include "coeus/base/error.hpp"
#include "coeus/base/error_text.hpp"
#include "coeus/base/log.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/text.hpp"
#include "coeus/file/json.hpp"
#include "coeus/file/toml.hpp"
#include "coeus/info/kinds.hpp"
#include "coeus/io/checkpoint.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>
#include <system_error>

namespace coeus::info {

namespace {

namespace fs = std::filesystem;

struct Metrics {
    struct Line {
        int64_t step;
        double loss;
        std::string text;
    };
    std::optional<Line> training, validation;  // the last of each
    int64_t lines = 0;
};

// Ignores a truncated last line, which a killed run can leave.
Metrics read_metrics(const fs::path& file) {
    Metrics metrics;
    std::error_code failed;
    std::istringstream in(text_patiently(file, failed));
    if (failed && failed != std::errc::no_such_file_or_directory)
        fail_at_path(fmt::format("{} cannot be read: {}", file.string(), failed.message()), failed.value());
    for (std::string text; std::getline(in, text) && !in.eof();) {
        ++metrics.lines;
        const JsonDocument document =
            JsonDocument::parse(text, fmt::format("{}, line {}", file.string(), metrics.lines));
        const JsonView line = document.root();
        if (line.contains("validation_loss"))
            metrics.validation = {line.integer("step"), line.number("validation_loss"), ""};
        else if (line.contains("loss") && line.contains("grad_norm"))
            metrics.training = {
                line.integer("step"), line.number("loss"),
                fmt::format("gradient norm {:.4g}, learning rate {:.4g}, {} tokens seen, {:.0f} tokens/s "
                            "per rank",
                            line.number("grad_norm"), line.number("lr"),
                            with_commas(line.integer("tokens_seen")), line.number("tps"))};
    }
    return metrics;
}

// Full and model-only checkpoints in all subfolders, sorted by path.
std::vector<std::string> checkpoints_in(const fs::path& folder) {
    std::vector<std::string> all;
    for (const fs::path& below : entries_patiently(folder)) {
        if (!is_folder_patiently(below)) continue;
        for (const fs::path& entry : entries_patiently(below)) {
            const std::string name = entry.filename().string();
            if ((name.starts_with("step-") || name.starts_with("model-")) && name.ends_with(".h5"))
                all.push_back(entry.string());
        }
    }
    std::sort(all.begin(), all.end());
    return all;
}

void show_deck_of(const fs::path& file, const Metrics& metrics) {
    std::map<std::string, std::string> deck;
    for (const TomlEntry& entry : read_toml(file)) {
        const auto* text = entry.value.as<std::string>();
        deck[entry.key] = text ? *text : toml_text(entry.value);
    }
    const auto value = [&](const char* key) {
        return deck.contains(key) ? deck[key] : std::string("not given");
    };
    entry("description", value("job.description"));
    entry("model", value("model.name") + " " + value("model.flavor"));
    entry("data", value("training.dataset_path"));
    entry("step", fmt::format("{} of {}", metrics.training ? with_commas(metrics.training->step) : "0",
                              value("training.steps")));
}

}  // namespace

void show_run_folder(const std::string& folder, const Options& options) {
    const fs::path root = folder;
    print("{}: folder of a run\n", folder);
    const Metrics metrics = read_metrics(root / "metrics.jsonl");
    show_deck_of(root / "deck.toml", metrics);
    if (metrics.training)
        entry("last loss", fmt::format("{:.5f} ({})", metrics.training->loss, metrics.training->text));
    if (metrics.validation)
        entry("validation", fmt::format("{:.5f} at step {}", metrics.validation->loss,
                                        with_commas(metrics.validation->step)));
    const std::vector<std::string> checkpoints = checkpoints_in(root);
    if (checkpoints.empty()) entry("checkpoints", "none");
    for (const std::string& file : checkpoints) {
        if (options.verify) {
            show_checkpoint(file, options);
            continue;
        }
        const CheckpointHeader header = read_checkpoint_header(file);
        entry("checkpoint", fmt::format("{}: step {}, {}, {}", file, with_commas(header.train.step),
                                        header.full ? "weights and optimizer" : "weights only",
                                        bytes_text(double(header.bytes))));
    }
    if (options.verify) entry("verified", fmt::format("{} lines of metrics", with_commas(metrics.lines)));
}

}  // namespace coeus::info
