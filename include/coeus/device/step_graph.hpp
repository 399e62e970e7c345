// SPDX-License-Identifier: Apache-2.0
// StepGraph: work that is given in each step of a run with other numbers in the same memory, as a graph of
// the device, which costs the host one call.
#pragma once

#include "coeus/base/function_ref.hpp"
#include "coeus/device/exec.hpp"

namespace coeus {

class StepGraph {
public:
    /// Gives the work to the Exec's queue, and what it forks; all it forks it joins. The first time it is
    /// called, so that what is made at first use is there; the second time it is called and recorded; from
    /// then on it is not called any more. Whatever else changes in the host must not depend on it.
    /// SystemError where the device cannot record it.
    void give(Exec& exec, FunctionRef<void()> work);
    /// Ends the graph, which refers to all that was recorded: before NCCL's communicators end, which wait for
    /// it.
    void forget() { graph_.reset(); }

private:
    bool called_ = false;
    std::unique_ptr<Graph> graph_;
};

}  // namespace coeus
