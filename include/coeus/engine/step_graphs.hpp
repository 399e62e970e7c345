// SPDX-License-Identifier: Apache-2.0
// StepGraphs: the graphs of an engine's step. The local batches between the first and the last share one.
#pragma once

#include "coeus/device/step_graph.hpp"

namespace coeus {

class StepGraphs {
public:
    /// Submits the gradients of a local batch, which is the step's first, its last, both, or neither. See
    /// StepGraph::give().
    void give_gradients(Exec& exec, bool first, bool last, FunctionRef<void()> work) {
        StepGraph& graph = last ? last_ : first ? first_ : between_;
        graph.give(exec, work);
    }
    void give_update(Exec& exec, FunctionRef<void()> work) { update_.give(exec, work); }
    /// The number of nodes of all graphs together.
    int64_t nodes() const { return first_.nodes() + between_.nodes() + last_.nodes() + update_.nodes(); }
    void forget() {
        for (StepGraph* graph : {&first_, &between_, &last_, &update_}) graph->forget();
    }

private:
    StepGraph first_{"the gradients of a step's first local batch"},
        between_{"the gradients of a local batch between the first and the last"},
        last_{"the gradients of a step's last local batch, and their sums"}, update_{"the update"};
};

}  // namespace coeus
