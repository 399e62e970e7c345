// SPDX-License-Identifier: Apache-2.0
// DualPipeV (DeepSeek-AI 2025): the V-shaped placement of ZBV. In the steady state a forward on one leg and a
// full backward on the other share a cell, so that their computations and messages may overlap. Weight halves
// are split off only while the pipeline fills and drains.
#include "built_in.hpp"

#include <fmt/core.h>

#include <array>

namespace coeus::pipeline {

namespace {

std::optional<Refusal> dualpipe_v_rule(const PipelineShape& shape) {
    if (auto rule = needs_virtual_stages("DualPipeV", shape, 2)) return rule;
    if (shape.microbatches >= 2 * shape.ranks) return std::nullopt;
    return Refusal{Refusal::Field::microbatches,
                   fmt::format("DualPipeV on {} ranks has {} stages and needs at least as many micro-batches",
                               shape.ranks, 2 * shape.ranks)};
}

// Returns the next forward or backward of the stage on the way down (leg 0) or back (leg 1).
class Counter {
public:
    Counter(const PipelineShape& shape, int rank) : stages_{rank, 2 * shape.ranks - 1 - rank} {}

    Action f(int leg) { return F(stages_[size_t(leg)], forwards_[size_t(leg)]++); }
    Action b(int leg) { return B(stages_[size_t(leg)], backwards_[size_t(leg)]++); }
    /// Returns I; its W is postponed.
    Action i(int leg) {
        const Action whole = b(leg);
        owed_.push_back(W(whole.stage, whole.microbatch));
        return I(whole.stage, whole.microbatch);
    }
    /// Returns the W that has been postponed longest.
    Action w() { return owed_[paid_++]; }

private:
    std::array<int, 2> stages_, forwards_{}, backwards_{};
    std::vector<Action> owed_;
    size_t paid_ = 0;
};

Row dualpipe_v_row(const PipelineShape& shape, int rank) {
    const int below = shape.ranks - 1 - rank;  // ranks after this one
    const bool turn = below == 0;              // the rank where the V turns has two neighbouring stages
    Counter next(shape, rank);
    Row row;
    const auto add = [&](const Action& action) { row.emplace_back(action); };

    // fill
    for (int k = 0; k < 2 * below; ++k) add(next.f(0));
    for (int k = 0; k <= rank; ++k) add(next.f(0)), add(next.f(1));
    for (int k = 0; k < below; ++k) add(next.i(1)), add(next.w()), add(next.f(1));
    // steady
    for (int k = 0; k < shape.microbatches - 2 * shape.ranks + rank + 1; ++k) {
        // the backward of the turn's first micro-batch has nothing to overlap with yet
        if (turn && k == 0) {
            add(next.f(0)), add(next.b(1));
        } else {
            const Action forward = next.f(0);
            row.emplace_back(forward, next.b(1));
        }
        const Action forward = next.f(1);
        row.emplace_back(forward, next.b(0));
    }
    // drain: from half way on, weight halves are postponed, so that input halves reach the other ranks sooner
    for (int k = 0; k < below; ++k) {
        add(next.b(1));
        const Action forward = next.f(1);
        row.emplace_back(forward, next.b(0));
    }
    for (int k = 0, half = (rank + 1) / 2; k <= rank; ++k) {
        const bool first_split = k > half || (k == half && rank % 2 == 1);
        add(first_split ? next.i(1) : next.b(1));
        add(k >= half ? next.i(0) : next.b(0));
    }
    for (int k = 0; k < below; ++k) add(next.w()), add(next.i(0));
    for (int k = 0; k <= rank; ++k) add(next.w());
    return row;
}

}  // namespace

const Schedule dualpipe_v = {"DualPipeV",
                             "ZBV whose forwards and backwards overlap in pairs",
                             2,
                             Placement::v_shaped,
                             dualpipe_v_rule,
                             dualpipe_v_row};

}  // namespace coeus::pipeline
