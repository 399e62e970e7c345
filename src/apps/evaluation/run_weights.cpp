// SPDX-License-Identifier: Apache-2.0
#include "run_weights.hpp"

#include "coeus/base/patient_io.hpp"
#include "coeus/base/text.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/file/toml.hpp"
#include "coeus/io/checkpoint.hpp"

#include <algorithm>
#include <filesystem>

namespace coeus::apps {

namespace {

namespace fs = std::filesystem;

// Whether a run with this folder saves its checkpoints to `checkpoints`. A deck alone does not
// make a run.
bool is_run_of(const fs::path& folder, const fs::path& checkpoints) {
    const std::string named = checkpoint_folder_of(folder.string());
    return !named.empty() && are_same_patiently(named, checkpoints) &&
           (exists_patiently(folder / "metrics.jsonl") || exists_patiently(folder / ".owner") ||
            exists_patiently(checkpoints / ".owner"));
}

// The folder of the run to which a checkpoint belongs: one above it, the place that was asked for, or the one
// of the run's deck.
std::string run_folder_of(const fs::path& checkpoint, const fs::path& place, const fs::path& dump_folder) {
    const auto or_here = [](const fs::path& folder) { return folder.empty() ? fs::path(".") : folder; };
    const fs::path checkpoints = or_here(checkpoint.parent_path());
    std::vector<fs::path> candidates;
    for (fs::path folder = checkpoint; candidates.size() < 3 && folder.has_relative_path();)
        candidates.push_back(folder = folder.parent_path());
    candidates.insert(candidates.end(), {place, dump_folder});
    for (const fs::path& folder : candidates)
        if (is_run_of(or_here(folder), checkpoints)) return or_here(folder).string();
    return "";
}

// Only on rank 0.
Weights weights_at(const Pretrained& source, const std::string& place) {
    Weights weights = {.path = source.path()};
    if (source.is_hub()) return weights;
    const TrainRecord record = read_checkpoint_header(source.path()).train;
    weights.step = record.step;
    std::string dump_folder = ".";
    for (const TomlEntry& entry : parse_toml(record.deck, source.path() + " (deck)")) {
        weights.deck.push_back(entry.key + " = " + toml_text(entry.value));
        if (const int64_t* steps = entry.value.as<int64_t>(); steps && entry.key == "training.steps")
            weights.last_step = *steps;
        if (const auto* folder = entry.value.as<std::string>(); folder && entry.key == "job.dump_folder")
            dump_folder = *folder;
    }
    weights.run_folder = run_folder_of(source.path(), place, dump_folder);
    weights.id = weights_id(source.path());
    return weights;
}

// The lines of the run's deck with these keys, or with keys of these sections ("validation.").
std::vector<std::string> settings_of_deck(const Weights& weights, const std::vector<std::string>& keys) {
    std::vector<std::string> settings;
    for (const std::string& line : weights.deck)
        if (std::ranges::any_of(keys, [&](const std::string& key) {
                return line.starts_with(key.ends_with('.') ? key : key + " ");
            }))
            settings.push_back(line);
    return settings;
}

// The settings of the run's deck that decide what is computed: layers in 8 bits, and for the windows of
// training the types and validation.
std::vector<std::string> settings_of_run(const Weights& weights, const Asked& asked) {
    std::vector<std::string> keys;
    if (asked.dtype.empty()) keys = {"model.converters", "quantize."};
    if (asked.training_windows) {
        keys.insert(keys.end(), {"validation.", "training.document_mask", "training.seq_len", "debug.seed",
                                 "training.bos_id", "training.eos_id"});
        if (asked.dtype.empty())
            keys.insert(keys.end(), {"training.dtype", "training.mixed_precision_param"});
    }
    return settings_of_deck(weights, keys);
}

}  // namespace

std::string toml_of(const std::string& text) {
    return toml_text({text});
}

bool was_in_8_bits(const Weights& weights) {
    return std::ranges::any_of(weights.deck, [](const std::string& line) {
        return line.starts_with("model.converters ") && line != "model.converters = []";
    });
}

int64_t planned_steps(const Weights& weights) {
    const fs::path deck = fs::path(weights.run_folder) / "deck.toml";
    if (!weights.run_folder.empty() && is_file_patiently(deck))
        for (const TomlEntry& entry : read_toml(deck))
            if (const int64_t* steps = entry.value.as<int64_t>(); steps && entry.key == "training.steps")
                return *steps;
    return weights.last_step;
}

Weights weights_of(const Communicator& world, const Pretrained& source, const std::string& place) {
    std::vector<std::string> texts;
    on_first_rank(world, [&] {
        const Weights found = weights_at(source, place);
        texts = {found.path, std::to_string(found.step), std::to_string(found.last_step), found.run_folder,
                 found.id};
        texts.insert(texts.end(), found.deck.begin(), found.deck.end());
    });
    texts = broadcast_texts(world, texts);
    return {.path = texts[0],
            .step = std::stoll(texts[1]),
            .last_step = std::stoll(texts[2]),
            .deck = {texts.begin() + 5, texts.end()},
            .run_folder = texts[3],
            .id = texts[4]};
}

Config deck_for(const Config& machine, const DeckRules& rules, const Weights& weights, const Asked& asked,
                int64_t row_length, bool masks) {
    std::vector<std::string> settings = settings_of_run(weights, asked);
    const bool in_8_bits = asked.dtype.empty() && was_in_8_bits(weights);
    const auto set = [&](const std::string& option, const auto& value) {
        settings.push_back(fmt::format("{} = {}", option, value));
    };
    const std::string dtype = asked.dtype.empty() && !asked.training_windows ? "bfloat16" : asked.dtype;
    if (!dtype.empty()) {
        // weights in 8 bits are made from those in float32
        set("training.dtype", toml_of(in_8_bits ? "float32" : dtype));
        set("training.mixed_precision_param", toml_of(dtype == "float64" ? "float32" : dtype));
    }
    // enough for every schedule, whose micro-batches nobody computes
    set("training.local_batch_size", 2 * machine.parallelism.pipeline_parallel_degree *
                                         machine.parallelism.pipeline_parallel_microbatch_size);
    set("validation.enable", true);
    if (!asked.training_windows) {
        set("training.document_mask", masks);
        set("training.seq_len", row_length);
        set("validation.seq_len", row_length);
        set("validation.local_batch_size", asked.batch);
    }
    return with_settings(machine, rules, settings);
}

Config deck_of_data(const Config& config, const DeckRules& rules, const Weights& weights, const Asked& asked,
                    const std::string& tokenizer) {
    std::vector<std::string> names;
    for (const std::string& file : asked.files) names.push_back(toml_of(file));
    const std::string list = "[" + join(names, ", ") + "]";
    const Config::Validation& validation = config.validation;
    std::vector<std::string> settings;
    if (validation.dataset_path.empty())  // a part of the training data was held out
        settings = settings_of_deck(
            weights, {"training.dataset_weights", "training.text_field", "training.bad_lines"});
    else  // the training data, which nobody reads, are the same files
        settings = {"validation.dataset_path = " + list,
                    "training.text_field = " + toml_of(validation.text_field),
                    "training.bad_lines = " + toml_of(validation.bad_lines),
                    fmt::format("training.seq_len = {}", validation.seq_len)};
    settings.push_back("training.dataset_path = " + list);
    settings.push_back("model.tokenizer_path = " + toml_of(tokenizer));
    return with_settings(config, rules, settings);
}

}  // namespace coeus::apps
