// SPDX-License-Identifier: Apache-2.0
#include "coeus/optim/param_groups.hpp"

#include "coeus/device/named_range.hpp"

namespace coeus {

ParamGroups::ParamGroups(const OptimizerOptions& options, uint64_t seed) {
    groups_.push_back({make_optimizer(options, seed, 0)});
}

void ParamGroups::attach(Parameters& parameters) const {
    parameters.keep([&](const Param&) -> Parameters::Kept {
        return {0, groups_.front().optimizer->moments(parameters.types())};
    });
}

StepScalars ParamGroups::begin_step(uint64_t step, double learning_rate, int64_t valid_tokens) const {
    require(step > 0, "steps count from 1");
    require(valid_tokens > 0, "a step without valid tokens has no mean loss");
    StepScalars scalars;
    scalars.step = step;
    scalars.learning_rate = learning_rate;
    scalars.loss_scale = 1 / double(valid_tokens);
    for (size_t i = 0; i < groups_.size(); ++i) {
        scalars.groups[i].learning_rate = learning_rate;
        groups_[i].optimizer->begin_step(step, scalars.groups[i]);
    }
    return scalars;
}

void ParamGroups::update(Exec& exec, const Kernels& kernels, const Parameters& parameters,
                         const StepScalars& scalars, Offloaded* offloaded) const {
    const NamedRange range("optimizer");
    const auto update_rows = [&](const OwnedRows& rows) {
        groups_[rows.param.group].optimizer->update(exec, kernels, rows, scalars);
    };
    if (offloaded)
        offloaded->for_each_owned(update_rows);
    else
        parameters.for_each_owned(update_rows);
}

}  // namespace coeus
