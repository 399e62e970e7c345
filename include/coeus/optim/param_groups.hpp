// SPDX-License-Identifier: Apache-2.0
// ParamGroups: which optimizer updates which parameters with which options; performs the updates of a step.
#pragma once

#include "coeus/base/regex.hpp"
#include "coeus/deck_names/optimizers.hpp"
#include "coeus/optim/optimizer.hpp"
#include "coeus/optim/whole_matrices.hpp"
#include "coeus/state/offloaded.hpp"

#include <map>
#include <string>

namespace coeus {

class ParamGroups {
public:
    /// A parameter is updated according to the first of `groups` that takes it, or else according to
    /// `options`. Parameters that the optimizer is not for (Muon: all except the matrices of blocks) are
    /// updated by AdamW with the same options, unless their group names its optimizer. `seed` is that of
    /// stochastic rounding. ConfigError with the group and option for an unknown optimizer, an invalid
    /// option, a pattern that is not a regular expression, or more groups than StepScalars has scalars for.
    explicit ParamGroups(const OptimizerOptions& options, uint64_t seed = 0,
                         const std::vector<ParamGroupOptions>& groups = {});

    /// Sets the group of each parameter, and the state that its optimizer keeps; called before memory is
    /// allocated. ConfigError for a group that takes no parameter, or a parameter that its group's optimizer
    /// cannot update.
    void attach(Parameters& parameters) const;
    /// The number of different optimizers that update these parameters.
    size_t num_optimizers(const Parameters& parameters) const;
    /// The number of parameters that each optimizer updates: "Muon for 14 parameters, AdamW for 7".
    std::string text(const Parameters& parameters) const;
    /// The scalars at the beginning of a step: its number (from 1), learning rates and bias corrections; no
    /// loss yet. `learning_rate` is options.lr times the factor of the schedule. `counted` is the number
    /// of labels that count.
    StepScalars begin_step(uint64_t step, double learning_rate, int64_t counted) const;
    /// Updates the part of each trainable parameter that this rank owns. Writes nothing if scalars.refusals
    /// is not 0. `offloaded` is needed for parameters with offloaded state, else null. `matrices` is for
    /// optimizers that need whole matrices; it may be null if there are none. The gradients may be changed.
    void update(Exec& exec, const Kernels& kernels, const Parameters& parameters, const StepScalars& scalars,
                const WholeMatrices* matrices = nullptr, Offloaded* offloaded = nullptr) const;
    /// The part of update() that uses scratch memory and communicates.
    void transform(Exec& exec, const Kernels& kernels, const Parameters& parameters,
                   const WholeMatrices& matrices) const;

private:
    struct Group {
        OptimizerOptions options;
        double rate;  // factor of the schedule's rate
        std::unique_ptr<Optimizer> optimizer;
    };
    // A rule from options: the numbers of the groups for parameters that decay and for those that do not.
    // `substitute` has the same two for the optimizer's substitute, or equals `own` if none is needed.
    struct Rule {
        ParamGroupOptions options;
        Regex pattern;
        struct Pair {
            size_t decays, does_not;
        } own, substitute;
    };
    Rule rule_of(const ParamGroupOptions& options, double base_rate, uint64_t seed);
    Rule::Pair add_pair(ParamGroupOptions options, double base_rate, uint64_t seed);
    size_t add(const ParamGroupOptions& options, double base_rate, uint64_t seed);
    const Rule& rule_for(const Param& param) const;
    size_t group_of(const Param& param) const;
    std::map<std::string, int64_t> parameters_by_optimizer(const Parameters& parameters) const;
    const Optimizer& optimizer_of(const Param& param) const { return *groups_[param.group].optimizer; }

    std::vector<Group> groups_;
    Rule rest_;                // for parameters that no other rule takes
    std::vector<Rule> rules_;  // the first rule that takes a parameter applies
};

}  // namespace coeus
