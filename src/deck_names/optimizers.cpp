// SPDX-License-Identifier: Apache-2.0
#include "coeus/deck_names/optimizers.hpp"

#include "coeus/deck_names/param_role.hpp"

#include <algorithm>

namespace coeus {

namespace {

bool lists(const OptimizerKind& kind, const std::string& option) {
    return std::ranges::find(kind.options, option) != kind.options.end();
}

// Null if no optimizer has the name.
const OptimizerKind* kind_of(const std::string& optimizer) {
    const auto kind = std::ranges::find(optimizer_kinds, optimizer, &OptimizerKind::name);
    return kind != optimizer_kinds.end() ? &*kind : nullptr;
}

}  // namespace

std::vector<std::string> optimizer_names() {
    std::vector<std::string> names;
    for (const OptimizerKind& kind : optimizer_kinds) names.emplace_back(kind.name);
    return names;
}

bool reads_option(const std::string& optimizer, const std::string& option) {
    bool is_of_some = false;
    for (const OptimizerKind& kind : optimizer_kinds) {
        if (kind.name == optimizer && lists(kind, option)) return true;
        is_of_some = is_of_some || lists(kind, option);
    }
    return !is_of_some;
}

std::string substitute_of(const std::string& optimizer) {
    const OptimizerKind* kind = kind_of(optimizer);
    return kind != nullptr ? std::string(kind->substitute) : "";
}

bool works_in_gradients(const std::string& optimizer) {
    const OptimizerKind* kind = kind_of(optimizer);
    return kind != nullptr && kind->works_in_gradients;
}

std::vector<std::string> role_names() {
    std::vector<std::string> names;
    for (const ParamRole role : param_roles) names.emplace_back(name_of(role));
    return names;
}

}  // namespace coeus
