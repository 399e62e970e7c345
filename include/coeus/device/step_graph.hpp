// SPDX-License-Identifier: Apache-2.0
// StepGraph: work that is submitted in every step with new values in the same memory. It is captured once as
// a CUDA graph and then replayed, which costs the host one call.
#pragma once

#include "coeus/base/function_ref.hpp"
#include "coeus/device/exec.hpp"

#include <string>

namespace coeus {

class StepGraph {
public:
    /// `what`: the work, for the log: "the gradients of a step".
    explicit StepGraph(std::string what) : what_(std::move(what)) {}

    /// Submits the work, which may use the Exec's queue and queues that it forks from it and joins again. The
    /// first call runs `work`, so that everything made at first use exists. The second call runs it again and
    /// records it. Later calls only replay the graph, so nothing on the host may depend on `work` being
    /// called. SystemError if the device cannot record it.
    void give(Exec& exec, FunctionRef<void()> work);
    /// Graph::nodes(); 0 if nothing was recorded.
    int64_t nodes() const { return graph_ ? graph_->nodes() : 0; }
    /// Destroys the graph, which refers to everything that was recorded. Must be called before NCCL's
    /// communicators are destroyed, since they wait for it.
    void forget() { graph_.reset(); }

private:
    void record(Queue& queue, FunctionRef<void()> work);

    std::string what_;
    bool called_ = false;
    std::unique_ptr<Graph> graph_;
};

}  // namespace coeus
