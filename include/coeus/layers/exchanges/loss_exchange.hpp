// SPDX-License-Identifier: Apache-2.0
// LossExchange: how tensor-parallel ranks, each with V/P columns of the logits, get the statistics of whole
// rows. The context selects it.
#pragma once

#include "coeus/layers/context.hpp"

namespace coeus {

class LossExchange {
public:
    virtual ~LossExchange() = default;
    /// Computes parts [P, n] (acc), the log sum exp of each rank's columns, and at_label [n] (acc), the
    /// label's logit, whichever rank has it. logits [n, V/P] and labels [n] are as for the kernel
    /// log_sum_exp. `output` is the table [V, D] that the ranks divide; `scale`: see VocabularyPart.
    virtual void statistics(Ctx& c, Tensor parts, Tensor at_label, Tensor logits, Tensor labels,
                            const Param& output, double scale) const = 0;
};

// split_loss(), declared in context.hpp: exchanges two numbers a token (loss parallel, Shoeybi et al. 2019,
// section 3).
/// Exchanges whole rows of logits (parallelism.disable_loss_parallel).
const LossExchange& whole_loss();

}  // namespace coeus
