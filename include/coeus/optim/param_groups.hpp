// SPDX-License-Identifier: Apache-2.0
// ParamGroups: which optimizer updates which parameters, with which options; the updates of a step.
#pragma once

#include "coeus/optim/optimizer.hpp"
#include "coeus/optim/options.hpp"
#include "coeus/optim/whole_matrices.hpp"
#include "coeus/state/offloaded.hpp"

#include <regex>

namespace coeus {

/// Names of all roles, in their order: "matrix", "embedding", ...
const std::vector<std::string>& role_names();

class ParamGroups {
public:
    /// A parameter is updated as the first of `groups` says that takes it, the others as `options` say.
    /// Parameters that the optimizer is not for (Muon: all but the matrices of blocks) are updated by AdamW
    /// with the same options, unless their group names its optimizer. `seed`: of stochastic rounding.
    /// ConfigError naming group and option: an unknown optimizer, an option that cannot be, a pattern that is
    /// not a regular expression, more groups than StepScalars has scalars for.
    explicit ParamGroups(const OptimizerOptions& options, uint64_t seed = 0,
                         const std::vector<ParamGroupOptions>& groups = {});

    /// Says to the parameters in which group they are, and what their optimizers keep of them; before they
    /// have memory. ConfigError naming a group that takes no parameter, or a parameter that its group's
    /// optimizer cannot update.
    void attach(Parameters& parameters) const;
    /// How many parameters each optimizer updates: "Muon for 14 parameters, AdamW for 7".
    std::string text(const Parameters& parameters) const;
    /// The scalars that a step begins with: its number (from 1), learning rates, bias corrections; no loss
    /// yet. `learning_rate`: options.lr times the schedule's factor.
    StepScalars begin_step(uint64_t step, double learning_rate, int64_t valid_tokens) const;
    /// Updates what this rank owns of each trainable parameter. Writes nothing where scalars.refusals is not
    /// 0. `offloaded`: of parameters with offloaded state; null: of others. `matrices`: for optimizers that
    /// look at whole ones; may be null where there is none. Gradients may be changed.
    void update(Exec& exec, const Kernels& kernels, const Parameters& parameters, const StepScalars& scalars,
                const WholeMatrices* matrices = nullptr, Offloaded* offloaded = nullptr) const;
    /// The part of update() that takes scratch and communicates.
    void transform(Exec& exec, const Kernels& kernels, const Parameters& parameters,
                   const WholeMatrices& matrices) const;

private:
    struct Group {
        OptimizerOptions options;
        double rate;  // times the schedule's
        std::unique_ptr<Optimizer> optimizer;
    };
    // What options say: the groups of parameters that decay and of those that do not; if the optimizer may
    // not be for all, the same two of its substitute, else twice its own.
    struct Rule {
        ParamGroupOptions options;
        std::regex pattern;
        struct Pair {
            size_t decays, does_not;
        } own, substitute;
    };
    Rule rule_of(const ParamGroupOptions& options, double base_rate, uint64_t seed);
    Rule::Pair add_pair(ParamGroupOptions options, double base_rate, uint64_t seed);
    size_t add(const ParamGroupOptions& options, double base_rate, uint64_t seed);
    const Rule& rule_for(const Param& param) const;
    size_t group_of(const Param& param) const;
    const Optimizer& optimizer_of(const Param& param) const { return *groups_[param.group].optimizer; }

    std::vector<Group> groups_;
    Rule rest_;                // of parameters that no other rule takes
    std::vector<Rule> rules_;  // the first that takes a parameter
};

}  // namespace coeus
