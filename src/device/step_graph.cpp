// SPDX-License-Identifier: Apache-2.0
#include "coeus/device/step_graph.hpp"

#include "coeus/base/clock.hpp"
#include "coeus/base/log.hpp"

namespace coeus {

void StepGraph::give(Exec& exec, FunctionRef<void()> work) {
    if (!called_) {
        work();
        called_ = true;
        return;
    }
    if (!graph_) record(*exec.queue, work);
    exec.queue->give(*graph_);
}

void StepGraph::record(Queue& queue, FunctionRef<void()> work) {
    queue.begin_recording();
    try {
        work();
    } catch (...) {
        try {
            queue.end_recording();
        } catch (...) {  // NOLINT: the first error is the one to report
        }
        throw;
    }
    const double before = steady_seconds();
    graph_ = queue.end_recording();
    log::debug("{}: a CUDA graph of {} nodes, instantiated in {:.1f} ms", what_, graph_->nodes(),
               1e3 * (steady_seconds() - before));
}

}  // namespace coeus
