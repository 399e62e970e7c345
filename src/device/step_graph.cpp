// SPDX-License-Identifier: Apache-2.0
#include "coeus/device/step_graph.hpp"

namespace coeus {

namespace {

std::unique_ptr<Graph> recorded(Queue& queue, FunctionRef<void()> work) {
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
    return queue.end_recording();
}

}  // namespace

void StepGraph::give(Exec& exec, FunctionRef<void()> work) {
    if (!called_) {
        work();
        called_ = true;
        return;
    }
    if (!graph_) graph_ = recorded(*exec.queue, work);
    exec.queue->give(*graph_);
}

}  // namespace coeus
