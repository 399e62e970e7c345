// SPDX-License-Identifier: Apache-2.0
// What a resumed run does otherwise than its checkpoint's deck said.
#include "coeus/base/text.hpp"
#include "coeus/file/toml.hpp"
#include "coeus/train/resume.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace coeus {

namespace {

// What a change of an option means for the continuation.
enum class Matter { nothing, samples, learning_rate, run };

Matter matter_of(const std::string& key, const Config& config) {
    const auto is_one_of = [&](std::initializer_list<const char*> keys) {
        return std::any_of(keys.begin(), keys.end(), [&](const char* other) { return key == other; });
    };
    if (is_one_of({"training.dataset_path", "training.dataset_weights", "training.seq_len",
                   "training.shuffle", "validation.enable", "validation.dataset_path",
                   "validation.dataset_weights"}))
        return Matter::samples;
    // the schedule's length is the run's where nothing else is said
    if (key == "training.steps")
        return config.lr_scheduler.total_steps ? Matter::nothing : Matter::learning_rate;
    if (key == "optimizer.lr" || key.starts_with("lr_scheduler.")) return Matter::learning_rate;
    // where things are written and shown, how the work is divided, and what has a word of its own (seed,
    // batch)
    for (const char* prefix :
         {"job.", "log.", "metrics.", "profiling.", "checkpoint.", "comm.", "parallelism.", "device",
          "include", "debug.", "activation_checkpoint.", "model.hf_assets_path", "model.tokenizer_path",
          "training.threads", "training.enable_cpu_offload", "training.local_batch_size",
          "training.global_batch_size", "training.dataset", "validation."})
        if (key.starts_with(prefix)) return Matter::nothing;
    return Matter::run;
}

std::map<std::string, std::string> values_of(const std::string& deck) {
    std::map<std::string, std::string> all;
    for (const TomlEntry& entry : parse_toml(deck, "deck")) all[entry.key] = toml_text(entry.value);
    return all;
}

}  // namespace

std::vector<std::string> changes_since(const std::string& checkpoint_deck, const Config& config) {
    auto before = values_of(checkpoint_deck);
    before.merge(values_of(deck_text(Config())));  // what an older deck does not say had its default
    const auto now = values_of(deck_text(config));
    std::set<std::string> keys;
    for (const auto& [key, value] : before) keys.insert(key);
    for (const auto& [key, value] : now) keys.insert(key);

    std::map<Matter, std::vector<std::string>> changes;
    for (const std::string& key : keys) {
        const auto text = [&](const auto& deck) {
            const auto at = deck.find(key);
            return at == deck.end() ? std::string("not given") : at->second;
        };
        if (text(before) != text(now))
            changes[matter_of(key, config)].push_back(
                fmt::format("{} was {}, is {}", key, text(before), text(now)));
    }
    std::vector<std::string> lines;
    if (const auto& samples = changes[Matter::samples]; !samples.empty())
        lines.push_back("the data is not the checkpoint's: samples may be seen again or never (" +
                        join(samples, "; ") + ")");
    if (const auto& rate = changes[Matter::learning_rate]; !rate.empty())
        lines.push_back("the learning-rate schedule is not the checkpoint's, the rate may jump (" +
                        join(rate, "; ") + ")");
    if (const auto& run = changes[Matter::run]; !run.empty())
        lines.push_back("the run is not the checkpoint's: " + join(run, "; "));
    return lines;
}

}  // namespace coeus
