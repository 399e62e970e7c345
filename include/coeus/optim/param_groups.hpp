// SPDX-License-Identifier: Apache-2.0
// ParamGroups: which optimizer updates which parameters, with which options; the updates of a step.
#pragma once

#include "coeus/optim/optimizer.hpp"
#include "coeus/state/offloaded.hpp"

namespace coeus {

class ParamGroups {
public:
    /// `seed`: of stochastic rounding.
    explicit ParamGroups(const OptimizerOptions& options, uint64_t seed = 0);

    /// Says to the parameters in which group they are, and what their optimizers keep of them; before they
    /// have memory.
    void attach(Parameters& parameters) const;
    /// The scalars that a step begins with: its number (from 1), learning rates, bias corrections; no loss
    /// yet.
    StepScalars begin_step(uint64_t step, double learning_rate, int64_t valid_tokens) const;
    /// Updates what this rank owns of each trainable parameter. Writes nothing where scalars.refusals is not
    /// 0. `offloaded`: of parameters with offloaded state; null: of others.
    void update(Exec& exec, const Kernels& kernels, const Parameters& parameters, const StepScalars& scalars,
                Offloaded* offloaded = nullptr) const;

private:
    struct Group {
        std::unique_ptr<Optimizer> optimizer;
    };
    std::vector<Group> groups_;
};

}  // namespace coeus
