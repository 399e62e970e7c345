// SPDX-License-Identifier: Apache-2.0
// StepScalars: the numbers of one optimizer step. They are in the backend's memory and kernels get a pointer
// to them, so that a captured graph needs no new launch arguments and the host need not wait for them.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace coeus {

/// The factors of one group that kernels on GPUs need in float: they would compute them once a thread, in
/// double.
struct GroupFactors {
    float keep = 1;                          ///< multiplies the weight: 1 - learning_rate * weight_decay
    float step_size = 0, inverse_root2 = 1;  ///< learning_rate / bias_correction1, bias_correction2^-1/2
};

/// The numbers of one parameter group.
struct GroupScalars {
    double learning_rate = 0;
    double weight_decay = 0;      ///< decoupled from the gradient
    double bias_correction1 = 1;  ///< 1 - beta1^step
    double bias_correction2 = 1;  ///< 1 - beta2^step
    GroupFactors factors = {};    ///< of these numbers: whoever changes one calls set_factors()

    constexpr double keep() const { return 1 - learning_rate * weight_decay; }
    double step_size() const { return learning_rate / bias_correction1; }
    double inverse_root2() const { return 1 / std::sqrt(bias_correction2); }
    void set_factors() { factors = {float(keep()), float(step_size()), float(inverse_root2())}; }
};

struct StepScalars {
    static constexpr size_t most_groups = 32;
    static constexpr size_t most_losses = 8;

    double learning_rate = 0;  ///< of the schedule
    double loss_scale = 1;     ///< 1 / (labels of the step that count, over all data-parallel ranks)
    double loss = 0;           ///< sum of the step's scaled token losses: this rank's, later all ranks'
    double own_loss = 0;       ///< this rank's sum, which stays
    std::array<double, most_losses> losses =
        {};                   ///< parts of the loss, which the model names; summed likewise
    double squared_norm = 0;  ///< of the gradient before clipping: this rank's shards, later all ranks'
    double grad_norm = 0;     ///< L2 norm of the whole model's gradient before clipping
    double clip = 1;          ///< min(1, max_norm / (grad_norm + 1e-6))
    uint64_t step = 0;        ///< counted from 1; also seeds stochastic rounding
    /// A step with a larger loss or norm is refused, as is one whose loss or norm is not finite.
    double loss_limit = std::numeric_limits<double>::infinity();
    double norm_limit = std::numeric_limits<double>::infinity();
    int64_t overflow = 0;  ///< above 0: experts' rows did not fit, so that the step is refused
    double refusals = 0;   ///< ranks that refuse the step; unless it is 0, the optimizer writes nothing
    std::array<GroupScalars, most_groups> groups = {};
};

}  // namespace coeus
