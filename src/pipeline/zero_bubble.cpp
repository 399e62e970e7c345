// SPDX-License-Identifier: Apache-2.0
// Interleaved zero bubble (ZB-H1 of Qi et al. 2023, with several stages on a rank): the backward is split,
// and each weight half W is postponed by as many turns as the rank's number, to times at which 1F1B would be
// idle. It first runs half as many forwards as interleaved 1F1B, since I takes half the time of B.
#include "built_in.hpp"

#include <algorithm>

namespace coeus::pipeline {

namespace {

std::optional<Refusal> zero_bubble_rule(const PipelineShape& shape) {
    return Rounds::broken_rule("InterleavedZeroBubble", shape);
}

Row zero_bubble_row(const PipelineShape& shape, int rank) {
    const Rounds rounds(shape);
    const int all = rounds.operations();
    const int ahead =
        std::min(all, (shape.virtual_stages - 1) * rounds.round_size() + shape.ranks - 1 - rank);
    Row row;
    for (int k = 0; k < ahead; ++k) row.emplace_back(rounds.forward(rank, k));
    // W follows I after `rank` operations
    for (int k = 0; k < all + rank; ++k) {
        if (k + ahead < all) row.emplace_back(rounds.forward(rank, k + ahead));
        if (k < all) row.emplace_back(rounds.backward(ActionKind::backward_input, rank, k));
        if (k >= rank) row.emplace_back(rounds.backward(ActionKind::backward_weight, rank, k - rank));
    }
    return row;
}

}  // namespace

const Schedule interleaved_zero_bubble = {"InterleavedZeroBubble",
                                          "interleaved 1F1B whose weight gradients fill the bubble",
                                          2,
                                          Placement::loop,
                                          zero_bubble_rule,
                                          zero_bubble_row};

}  // namespace coeus::pipeline
