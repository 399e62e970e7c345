// SPDX-License-Identifier: Apache-2.0
#include "coeus/state/frozen.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "coeus/state/parameters.hpp"

#include <algorithm>

namespace coeus {

namespace {

// Calls each(param) for the parameters of the whole model that gradients train, or would if they were not
// frozen.
template <class Each>
void for_each_param(const Parameters& parameters, const Each& each) {
    for (const Storage* storage : parameters.model())
        for (const Param& param : storage->params())
            if (!param.is_exact) each(param);
}

}  // namespace

Frozen::Frozen(const std::vector<std::string>& patterns) {
    if (patterns.empty()) return;
    std::vector<Pattern> all;
    for (const std::string& pattern : patterns)
        all.push_back({pattern, Regex(pattern, fmt::format("model.frozen: \"{}\"", pattern))});
    patterns_ = std::make_shared<const std::vector<Pattern>>(std::move(all));
}

bool Frozen::takes(const std::string& parameter) const {
    return patterns_ && std::ranges::any_of(*patterns_, [&](const Pattern& pattern) {
               return pattern.regex.matches_part_of(parameter);
           });
}

void Frozen::require_sensible(const Parameters& parameters) const {
    if (!patterns_) return;
    for (const Pattern& pattern : *patterns_) {
        bool matches = false;
        for_each_param(parameters, [&](const Param& param) {
            matches = matches || pattern.regex.matches_part_of(param.name);
        });
        if (!matches)
            throw ConfigError(
                "model.frozen: \"{}\" matches no parameter; `coeus info DECK --model` lists the names",
                pattern.text);
    }
    bool trains = false;
    for_each_param(parameters, [&](const Param& param) { trains = trains || param.trainable; });
    if (!trains) throw ConfigError("model.frozen matches every parameter, so that nothing would be trained");
}

std::string Frozen::text() const {
    std::vector<std::string> all;
    for (size_t i = 0; patterns_ && i < patterns_->size(); ++i) all.push_back((*patterns_)[i].text);
    return join(all, ", ");
}

std::string Frozen::text(const Parameters& parameters) {
    int64_t all = 0, frozen = 0, all_elements = 0, frozen_elements = 0;
    for_each_param(parameters, [&](const Param& param) {
        ++all;
        all_elements += param.shape.count();
        if (!param.is_frozen()) return;
        ++frozen;
        frozen_elements += param.shape.count();
    });
    return frozen == 0 ? ""
                       : fmt::format("{} of {} parameters, {} of {} elements", frozen, all,
                                     with_commas(frozen_elements), with_commas(all_elements));
}

}  // namespace coeus
