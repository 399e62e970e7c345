// SPDX-License-Identifier: Apache-2.0
#include "checkpoint_exclusion.hpp"

#include "coeus/base/text.hpp"
#include "coeus/file/toml.hpp"

#include <algorithm>
#include <iterator>

namespace coeus {

namespace {

Words excluded_by(const std::string& deck) {
    Words parts;
    for (const TomlEntry& entry : parse_toml(deck, "the deck of the checkpoint"))
        if (entry.key == "checkpoint.exclude_from_loading")
            if (const auto* list = entry.value.as<TomlValue::List>())
                for (const TomlValue& value : *list)
                    if (const auto* part = value.as<std::string>()) parts.push_back(*part);
    return parts;
}

std::string meaning_of(const std::string& part) {
    if (part == "optimizer") return "the optimizer's moments and bias correction";
    if (part == "lr_scheduler") return "the learning-rate schedule";
    if (part == "dataloader") return "the data";
    return "the count of steps and tokens";
}

std::string meanings_of(const Words& parts) {
    std::vector<std::string> all;
    std::transform(parts.begin(), parts.end(), std::back_inserter(all), meaning_of);
    return join(all, ", ");
}

}  // namespace

Words still_to_exclude(const Words& parts, const std::string& checkpoint_deck) {
    const Words before = excluded_by(checkpoint_deck);
    Words rest;
    std::copy_if(parts.begin(), parts.end(), std::back_inserter(rest),
                 [&](const std::string& part) { return !excludes(before, part); });
    return rest;
}

TrainRecord reset_parts(TrainRecord train, const Words& parts) {
    int64_t schedule = train.schedule_step.value_or(train.step),
            optimizer = train.optimizer_step.value_or(train.step);
    if (excludes(parts, "optimizer")) optimizer = 0;
    if (excludes(parts, "lr_scheduler")) schedule = 0;
    if (excludes(parts, "dataloader")) train.sample = 0;
    if (excludes(parts, "train_state")) {
        train.step = train.tokens_seen = 0;
        train.guards.clear();
        train.validation_is_left = false;
    }
    train.schedule_step = schedule;
    train.optimizer_step = optimizer;
    return train;
}

std::string describe_exclusion(const Words& parts, const Words& excluded) {
    std::string text;
    if (!excluded.empty()) text = fmt::format("not loaded but reset: {}", meanings_of(excluded));
    Words already;
    std::copy_if(parts.begin(), parts.end(), std::back_inserter(already),
                 [&](const std::string& part) { return !excludes(excluded, part); });
    if (!already.empty())
        text += fmt::format("{}reset by the run that wrote this checkpoint, and loaded now: {}",
                            text.empty() ? "" : "; ", meanings_of(already));
    return text.empty() ? "" : "checkpoint.exclude_from_loading: " + text;
}

}  // namespace coeus
