// SPDX-License-Identifier: Apache-2.0
// LossExchange: how tensor-parallel ranks, each with V/P columns of the logits, come to the statistics of
// whole rows. The context brings it.
#pragma once

#include "coeus/layers/context.hpp"

namespace coeus {

class LossExchange {
public:
    virtual ~LossExchange() = default;
    /// parts [P, n] (acc): log sum exp of each rank's columns; at_label [n] (acc): the label's logit, whoever
    /// has it. logits [n, V/P] and labels [n] as the kernel log_sum_exp takes them. `output`: the table [V,
    /// D] whose parts the ranks have.
    virtual void statistics(Ctx& c, Tensor parts, Tensor at_label, Tensor logits, Tensor labels,
                            const Param& output) const = 0;
};

// split_loss(), declared in context.hpp: two numbers a token travel (loss parallel, Shoeybi et al. 2019, 3).
/// Whole rows of logits travel (parallelism.disable_loss_parallel).
const LossExchange& whole_loss();

}  // namespace coeus
