// SPDX-License-Identifier: Apache-2.0
#include "coeus/optim/optimizer.hpp"

#include "adam.hpp"
#include "coeus/base/text.hpp"
#include "muon.hpp"

namespace coeus {

namespace {

struct Entry {
    const char* name;
    std::unique_ptr<Optimizer> (*make)(const OptimizerOptions& options, uint64_t seed, size_t group);
    const char* substitute = "";  // for the parameters that it is not for
};
constexpr Entry entries[] = {
    {"AdamW", make_adam},
    {"Adam", make_adam},
    {"Muon", make_muon, "AdamW"},
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, uint64_t seed, size_t group) {
    for (const Entry& entry : entries)
        if (options.name == entry.name) return entry.make(options, seed, group);
    throw ConfigError("optimizer.name = \"{}\": must be one of {}", options.name,
                      join(optimizer_names(), ", "));
}

std::vector<std::string> optimizer_names() {
    std::vector<std::string> names;
    for (const Entry& entry : entries) names.emplace_back(entry.name);
    return names;
}

std::string substitute_of(const std::string& optimizer) {
    for (const Entry& entry : entries)
        if (optimizer == entry.name) return entry.substitute;
    return "";
}

}  // namespace coeus
