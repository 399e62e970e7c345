// SPDX-License-Identifier: Apache-2.0
// The numbers of one optimizer step. They live in the backend's memory and kernels get a pointer, so that a
// captured graph needs no new launch arguments and the host need not wait for them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace coeus {

/// Those of a group of parameters that an optimizer updates alike.
struct GroupScalars {
    double learning_rate = 0;
    double bias_correction1 = 1;  ///< 1 - beta1^step
    double bias_correction2 = 1;  ///< 1 - beta2^step
};

struct StepScalars {
    static constexpr size_t most_groups = 32;

    double learning_rate = 0;  ///< the schedule's
    double loss_scale = 1;     ///< 1 / (valid tokens of the whole step, over all data ranks)
    double loss = 0;           ///< sum of the step's scaled token losses; this rank's, then the world's
    double own_loss = 0;       ///< this rank's still
    double squared_norm = 0;   ///< of the gradient, before clipping; this rank's shards, then the world's
    double grad_norm = 0;      ///< L2 norm of the whole model's gradient, before clipping
    double clip = 1;           ///< min(1, max_norm / (grad_norm + 1e-6))
    uint64_t step = 0;         ///< from 1; seeds stochastic rounding
    /// A larger loss or norm is refused, as one that is not finite is.
    double loss_limit = std::numeric_limits<double>::infinity();
    double norm_limit = std::numeric_limits<double>::infinity();
    double refusals = 0;  ///< ranks that refuse the step; the optimizer writes nothing where there are any
    std::array<GroupScalars, most_groups> groups = {};
};

}  // namespace coeus
