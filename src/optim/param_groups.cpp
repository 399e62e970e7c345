// SPDX-License-Identifier: Apache-2.0
#include "coeus/optim/param_groups.hpp"

#include "coeus/base/text.hpp"
#include "coeus/device/named_range.hpp"

#include <algorithm>

namespace coeus {

namespace {

static_assert(most_param_groups + 1 == StepScalars::most_groups);

bool names_role(const std::vector<std::string>& roles, const Param& param) {
    return std::ranges::find(roles, name_of(param.role)) != roles.end();
}

// A group's name in messages.
std::string name_of(const ParamGroupOptions& group) {
    std::vector<std::string> parts;
    if (!group.pattern.empty()) parts.push_back(fmt::format("pattern = \"{}\"", group.pattern));
    if (!group.roles.empty()) parts.push_back(fmt::format("roles = \"{}\"", join(group.roles, ",")));
    return join(parts, ", ");
}

// The text before an option's name in messages.
std::string place_of(const ParamGroupOptions& group) {
    const std::string name = name_of(group);
    return name.empty() ? "optimizer." : fmt::format("optimizer.param_groups: {}: ", name);
}

Regex regex_of(const ParamGroupOptions& group) {
    return Regex(group.pattern, fmt::format("optimizer.param_groups: {}", name_of(group)));
}

}  // namespace

ParamGroups::ParamGroups(const OptimizerOptions& options, uint64_t seed,
                         const std::vector<ParamGroupOptions>& groups)
    : rest_(rule_of({.pattern = "", .roles = {}, .optimizer = options}, options.lr, seed)) {
    for (const ParamGroupOptions& group : groups) rules_.push_back(rule_of(group, options.lr, seed));
}

ParamGroups::Rule ParamGroups::rule_of(const ParamGroupOptions& options, double base_rate, uint64_t seed) {
    Rule rule = {.options = options, .pattern = regex_of(options), .own = {}, .substitute = {}};
    rule.own = rule.substitute = add_pair(options, base_rate, seed);
    ParamGroupOptions others = options;
    others.optimizer.name = substitute_of(options.optimizer.name);
    if (!options.names_optimizer && !others.optimizer.name.empty())
        rule.substitute = add_pair(others, base_rate, seed);
    return rule;
}

ParamGroups::Rule::Pair ParamGroups::add_pair(ParamGroupOptions options, double base_rate, uint64_t seed) {
    const size_t decays = add(options, base_rate, seed);
    if (options.optimizer.weight_decay_exclude.empty() || options.optimizer.weight_decay == 0)
        return {decays, decays};
    options.optimizer.weight_decay = 0;
    return {decays, add(options, base_rate, seed)};
}

size_t ParamGroups::add(const ParamGroupOptions& options, double base_rate, uint64_t seed) {
    const size_t number = groups_.size();
    const OptimizerOptions& optimizer = options.optimizer;
    if (number == StepScalars::most_groups)
        throw ConfigError(
            "optimizer.param_groups: too many groups; at most {} kinds of updates are possible, and a group "
            "has up to four (optimizer and its substitute, with weight decay and without)",
            StepScalars::most_groups);
    if (base_rate == 0 && optimizer.lr != 0)
        throw ConfigError(
            "{}lr = {}: the schedule multiplies optimizer.lr, and with it the rate of each group, so "
            "optimizer.lr must not be 0",
            place_of(options), optimizer.lr);
    const double rate = optimizer.lr == base_rate ? 1 : optimizer.lr / base_rate;
    try {
        groups_.push_back({optimizer, rate, make_optimizer(optimizer, seed, number)});
    } catch (const ConfigError& error) {
        throw ConfigError("{}{}", place_of(options), error.what());
    }
    return number;
}

const ParamGroups::Rule& ParamGroups::rule_for(const Param& param) const {
    for (const Rule& rule : rules_)
        if ((rule.options.roles.empty() || names_role(rule.options.roles, param)) &&
            rule.pattern.matches_part_of(param.name))
            return rule;
    return rest_;
}

// An optimizer that a group names is used for everything that the group takes.
size_t ParamGroups::group_of(const Param& param) const {
    const Rule& rule = rule_for(param);
    const Optimizer& optimizer = *groups_[rule.own.decays].optimizer;
    const bool is_named = rule.options.names_optimizer;
    const bool takes = is_named ? optimizer.can_take(param) : optimizer.is_for(param);
    if (!takes && is_named)
        throw ConfigError(
            "optimizer.param_groups: {}: {} is for matrices, and {} is a vector; let the group take "
            "matrices only",
            name_of(rule.options), rule.options.optimizer.name, param.name);
    const Rule::Pair& pair = takes ? rule.own : rule.substitute;
    return names_role(rule.options.optimizer.weight_decay_exclude, param) ? pair.does_not : pair.decays;
}

void ParamGroups::attach(Parameters& parameters) const {
    for (const Rule& rule : rules_) {
        const bool takes_some = std::ranges::any_of(parameters.model(), [&](const Storage* storage) {
            return std::ranges::any_of(storage->params(), [&](const Param& param) {
                return !param.is_exact && &rule_for(param) == &rule;
            });
        });
        if (!takes_some)
            throw ConfigError(
                "optimizer.param_groups: {}: it takes no parameter, except those that an earlier group takes",
                name_of(rule.options));
    }
    parameters.keep([&](const Param& param) -> Parameters::Kept {
        if (!param.trainable) return {0, {}};
        const size_t group = group_of(param);
        return {group, groups_[group].optimizer->moments(parameters.types())};
    });
}

std::map<std::string, int64_t> ParamGroups::parameters_by_optimizer(const Parameters& parameters) const {
    std::map<std::string, int64_t> count;
    for (const Storage* storage : parameters.model())
        for (const Param& param : storage->params())
            if (param.trainable) ++count[groups_[param.group].options.name];
    return count;
}

size_t ParamGroups::num_optimizers(const Parameters& parameters) const {
    return parameters_by_optimizer(parameters).size();
}

std::string ParamGroups::text(const Parameters& parameters) const {
    std::vector<std::string> parts;
    for (const auto& [name, number] : parameters_by_optimizer(parameters))
        parts.push_back(fmt::format("{} for {} parameter{}", name, number, number == 1 ? "" : "s"));
    return join(parts, ", ");
}

StepScalars ParamGroups::begin_step(uint64_t step, double learning_rate, int64_t counted) const {
    require(step > 0, "steps count from 1");
    require(counted > 0, "a step without valid tokens has no mean loss");
    StepScalars scalars;
    scalars.step = step;
    scalars.learning_rate = learning_rate;
    scalars.loss_scale = 1 / double(counted);
    for (size_t i = 0; i < groups_.size(); ++i) {
        scalars.groups[i].learning_rate = groups_[i].rate * learning_rate;
        groups_[i].optimizer->begin_step(step, scalars.groups[i]);
        scalars.groups[i].set_factors();
    }
    return scalars;
}

void ParamGroups::update(Exec& exec, const Kernels& kernels, const Parameters& parameters,
                         const StepScalars& scalars, const WholeMatrices* matrices,
                         Offloaded* offloaded) const {
    const NamedRange range("optimizer");
    const auto for_each_owned = [&](EachRows each) {
        if (offloaded)
            offloaded->for_each_owned(each);
        else
            parameters.for_each_owned(each);
    };
    for_each_owned(
        [&](const OwnedRows& rows) { optimizer_of(rows.param).update(exec, kernels, rows, scalars); });
    const auto is_of_matrices = [](const Group& group) { return group.optimizer->of_matrices() != nullptr; };
    if (std::ranges::none_of(groups_, is_of_matrices)) return;
    require(matrices != nullptr, "an optimizer needs whole matrices");
    transform(exec, kernels, parameters, *matrices);
    for_each_owned([&](const OwnedRows& rows) {
        if (const MatrixOptimizer* optimizer = optimizer_of(rows.param).of_matrices())
            optimizer->descend(exec, kernels, rows, scalars);
    });
}

void ParamGroups::transform(Exec& exec, const Kernels& kernels, const Parameters& parameters,
                            const WholeMatrices& matrices) const {
    const auto is_of_matrices = [&](const Param& param) {
        return optimizer_of(param).of_matrices() != nullptr;
    };
    for (const Storage& storage : parameters.storages()) {
        if (!storage.trainable() || std::ranges::none_of(storage.params(), is_of_matrices)) continue;
        matrices.replace(exec, kernels, storage, [&](const Param& param, Tensor matrix) {
            if (const MatrixOptimizer* optimizer = optimizer_of(param).of_matrices())
                optimizer->transform(exec, kernels, param, matrix, matrices.scratch());
        });
    }
}

}  // namespace coeus
