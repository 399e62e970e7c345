// SPDX-License-Identifier: Apache-2.0
#include "coeus/optim/optimizer.hpp"

#include "adam.hpp"
#include "coeus/base/text.hpp"
#include "muon.hpp"

#include <algorithm>

namespace coeus {

namespace {

using Names = std::vector<std::string>;

struct Entry {
    std::string name;
    std::unique_ptr<Optimizer> (*make)(const OptimizerOptions& options, uint64_t seed, size_t group);
    Names options;           // that not all optimizers read
    std::string substitute;  // for the parameters that it is not for; empty: it is for all
};

const std::vector<Entry>& entries() {
    static const Names of_adam = {"beta1", "beta2", "eps", "implementation"},
                       of_muon = {"momentum", "nesterov", "ns_steps", "ns_coefficients", "adjust_lr_fn"};
    static const std::vector<Entry> all = {
        {"AdamW", make_adam, of_adam, ""},
        {"Adam", make_adam, of_adam, ""},
        {"Muon", make_muon, of_muon, "AdamW"},
    };
    return all;
}

bool lists(const Entry& entry, const std::string& option) {
    return std::ranges::find(entry.options, option) != entry.options.end();
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, uint64_t seed, size_t group) {
    for (const Entry& entry : entries())
        if (options.name == entry.name) return entry.make(options, seed, group);
    throw ConfigError("name = \"{}\": must be one of {}", options.name, join(optimizer_names(), ", "));
}

std::vector<std::string> optimizer_names() {
    std::vector<std::string> names;
    for (const Entry& entry : entries()) names.push_back(entry.name);
    return names;
}

bool reads_option(const std::string& optimizer, const std::string& option) {
    bool is_of_some = false;
    for (const Entry& entry : entries()) {
        if (entry.name == optimizer && lists(entry, option)) return true;
        is_of_some = is_of_some || lists(entry, option);
    }
    return !is_of_some;
}

std::string substitute_of(const std::string& optimizer) {
    for (const Entry& entry : entries())
        if (optimizer == entry.name) return entry.substitute;
    return "";
}

}  // namespace coeus
