// SPDX-License-Identifier: Apache-2.0
// Differences between the deck of a resumed run and the deck of its checkpoint.
#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "coeus/file/toml.hpp"
#include "precision_converters.hpp"

#include <fmt/format.h>

#include <map>
#include <set>

namespace coeus {

namespace {

using namespace config;

const std::string groups = "optimizer.param_groups", shuffle = "training.shuffle",
                  logits_chunk = "kernels.logits_chunk_mib", norm_type = "model.norm_type";

// An option that this version does not know affects the run.
Matter matter_of(const std::string& name, const Config& config) {
    // the length of the run is also that of the schedule, unless the deck sets the latter
    if (name == "training.steps" && config.lr_scheduler.total_steps) return to_nothing;
    // "optimizer.param_groups[0].optimizer_kwargs.lr"
    const bool is_of_group = name.starts_with(groups + "[");
    if (is_of_group && name.ends_with(".lr")) return to_learning_rate;
    const Option* option = find_option(is_of_group ? groups : name);
    if (option == nullptr) return to_run;
    return missing_converter(*option, config).empty() ? option->matters : to_nothing;
}

std::map<std::string, std::string> values_of(const std::string& deck) {
    std::map<std::string, std::string> all;
    for (const TomlEntry& entry : parse_toml(deck, "the deck of the checkpoint")) {
        const auto* list = entry.value.as<TomlValue::List>();
        if (entry.key != groups || list == nullptr) {
            all[entry.key] = toml_text(entry.value);
            continue;
        }
        // each option of each group separately
        for (size_t i = 0; i < list->size(); ++i)
            for (const TomlEntry& option :
                 parse_toml("group = " + toml_text((*list)[i]), "the deck of the checkpoint"))
                all[fmt::format("{}[{}]{}", entry.key, i, option.key.substr(std::string("group").size()))] =
                    toml_text(option.value);
    }
    return all;
}

struct Change {
    std::string option, text;  // "optimizer.lr", "optimizer.lr was 0.1, is 0.2"
};

std::map<Matter, std::vector<Change>> all_changes(const std::string& checkpoint_deck, const Config& config) {
    auto before = values_of(checkpoint_deck);
    before.merge(
        values_of(deck_text(Config())));   // options that an older deck does not have were at their defaults
    before.try_emplace(shuffle, "false");  // versions that did not write it did not shuffle
    auto now = values_of(deck_text(config));
    // kept
    if (!config.training.shuffle) now[shuffle] = before[shuffle];
    if (!config.kernels.logits_chunk_mib && before.contains(logits_chunk))
        now[logits_chunk] = before[logits_chunk];
    // the default that 0.2 wrote; the norms of both models are compared as fields of a model
    if (const auto at = before.find(norm_type);
        !config.model.norm_type && at != before.end() && at->second == "\"rmsnorm\"")
        before.erase(at);
    std::set<std::string> keys;
    for (const auto& [key, value] : before) keys.insert(key);
    for (const auto& [key, value] : now) keys.insert(key);

    std::map<Matter, std::vector<Change>> changes;
    for (const std::string& key : keys) {
        const auto text = [&](const auto& deck) {
            const auto at = deck.find(key);
            return at == deck.end() ? std::string("not given") : at->second;
        };
        if (text(before) != text(now))
            changes[matter_of(key, config)].push_back(
                {key, fmt::format("{} was {}, is {}", key, text(before), text(now))});
    }
    return changes;
}

std::vector<std::string> texts(const std::vector<Change>& changes) {
    std::vector<std::string> all;
    for (const Change& change : changes) all.push_back(change.text);
    return all;
}

}  // namespace

std::vector<std::string> changes_since(const std::string& checkpoint_deck, const Config& config) {
    auto changes = all_changes(checkpoint_deck, config);
    std::vector<std::string> lines;
    if (const auto samples = texts(changes[to_samples]); !samples.empty())
        lines.push_back("the data differs from the checkpoint's: some samples may be used twice or never (" +
                        join(samples, "; ") + ")");
    if (const auto rate = texts(changes[to_learning_rate]); !rate.empty())
        lines.push_back("the learning-rate schedule differs from the checkpoint's; the rate may jump (" +
                        join(rate, "; ") + ")");
    if (const auto run = texts(changes[to_run]); !run.empty())
        lines.push_back("the run differs from the checkpoint's: " + join(run, "; "));
    return lines;
}

bool shuffle_of_deck(const std::string& checkpoint_deck) {
    const auto values = values_of(checkpoint_deck);
    const auto at = values.find(shuffle);
    return at != values.end() && at->second == "true";
}

std::optional<int64_t> logits_chunk_of_deck(const std::string& checkpoint_deck) {
    bool is_of_0_2 = !checkpoint_deck.empty();
    for (const TomlEntry& entry : parse_toml(checkpoint_deck, "the deck of the checkpoint")) {
        if (const auto* mib = entry.value.as<int64_t>();
            entry.key == logits_chunk && mib != nullptr && chunk_mib.holds(double(*mib)))
            return *mib;
        if (entry.key == "kernels.deterministic") is_of_0_2 = false;
    }
    return is_of_0_2 ? std::optional<int64_t>(256) : std::nullopt;
}

void require_deck_of_finished_run(const std::string& checkpoint_deck, const Config& config, int64_t step) {
    std::vector<std::string> changed, pattern;
    for (const auto& [matter, changes] : all_changes(checkpoint_deck, config))
        for (const Change& change : changes) {
            if (matter == to_nothing || change.option == "training.steps") continue;
            changed.push_back(change.text);
            if (find_option(change.option) != nullptr) pattern.push_back("{" + change.option + "}");
        }
    if (changed.empty()) return;
    throw ConfigError(
        "{} contains a finished run (step {}) with a different deck: {}. Give this run its own folder{}, or "
        "increase training.steps to continue the finished run with this deck",
        config.job.dump_folder, step, join(changed, "; "),
        pattern.empty() ? ""
                        : fmt::format(", such as --job.dump_folder=\"{}/{}\"", config.job.dump_folder,
                                      join(pattern, "_")));
}

}  // namespace coeus
