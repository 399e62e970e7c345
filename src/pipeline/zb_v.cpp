// SPDX-License-Identifier: Apache-2.0
// ZBV (Qi et al. 2024, zero bubble with a V): each rank has a stage on the way down the ranks and one on the
// way back, so the last stage is on rank 0 and its backwards begin at once. There is no bubble if F, I and W
// take equally long, with no more frames than 1F1B.
#include "built_in.hpp"

#include <algorithm>
#include <array>

namespace coeus::pipeline {

namespace {

std::optional<Refusal> zb_v_rule(const PipelineShape& shape) {
    return needs_virtual_stages("ZBVZeroBubble", shape, 2);
}

// Appends the next F, I or W of the stage on the way down (leg 0) or back (leg 1). The pattern needs 2 P - 1
// micro-batches to close. If there are fewer, the missing ones are counted but left out.
class RowWriter {
public:
    RowWriter(const PipelineShape& shape, int rank)
        : stages_{rank, 2 * shape.ranks - 1 - rank}, microbatches_(shape.microbatches) {}

    void f(int leg) { add(ActionKind::forward, leg, forwards[size_t(leg)]++); }
    void i(int leg) { add(ActionKind::backward_input, leg, inputs[size_t(leg)]++); }
    void w(int leg) { add(ActionKind::backward_weight, leg, weights[size_t(leg)]++); }
    void iw(int leg) { i(leg), w(leg); }

    std::array<int, 2> forwards{}, inputs{}, weights{};
    Row row;

private:
    void add(ActionKind kind, int leg, int microbatch) {
        if (microbatch < microbatches_) row.emplace_back(Action{kind, stages_[size_t(leg)], microbatch});
    }
    std::array<int, 2> stages_;
    int microbatches_;
};

Row zb_v_row(const PipelineShape& shape, int rank) {
    const int ranks = shape.ranks, microbatches = std::max(2 * ranks - 1, shape.microbatches);
    RowWriter write(shape, rank);
    // fill: until the first micro-batch has returned to this rank, then until it has gone down again
    for (int k = 0; k < 2 * (ranks - rank) - 1; ++k) write.f(0);
    for (int k = 0; k < rank; ++k) write.f(1), write.f(0);
    for (int k = 0; k < ranks - rank; ++k) write.f(1), write.iw(1);
    // steady: F I W on each leg
    while (write.forwards[1] < write.forwards[0] || write.forwards[0] < microbatches) {
        if (write.forwards[0] < microbatches) write.f(0);
        write.iw(0);
        write.f(1);
        write.iw(1);
    }
    // drain: input halves first, since other ranks wait for them
    for (int k = 0; k < rank; ++k) write.i(0), write.i(1);
    for (int k = 0; k < ranks - rank; ++k) write.iw(0);
    while (write.weights[1] < write.inputs[1]) write.w(1);
    while (write.weights[0] < write.inputs[0]) write.w(0);
    return write.row;
}

}  // namespace

const Schedule zb_v = {
    "ZBVZeroBubble", "zero bubble with stages down the ranks and back", 2, Placement::v_shaped, zb_v_rule,
    zb_v_row};

}  // namespace coeus::pipeline
