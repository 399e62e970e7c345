// SPDX-License-Identifier: Apache-2.0
// Interleaved 1F1B (Narayanan et al. 2021): each rank has several stages, so that the pipeline fills V times
// faster. Rank r first runs the forwards of (V - 1) rounds and 2 (P - 1 - r) more, then alternates one
// forward and one backward.
#include "built_in.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace coeus::pipeline {

namespace {

std::optional<Refusal> interleaved_rule(const PipelineShape& shape) {
    return Rounds::broken_rule("Interleaved1F1B", shape);
}

Row interleaved_row(const PipelineShape& shape, int rank) {
    const Rounds rounds(shape);
    const int all = rounds.operations();
    const int ahead =
        std::min(all, (shape.virtual_stages - 1) * rounds.round_size() + 2 * (shape.ranks - 1 - rank));
    Row row;
    for (int k = 0; k < ahead; ++k) row.emplace_back(rounds.forward(rank, k));
    for (int k = 0; k < all; ++k) {
        if (k + ahead < all) row.emplace_back(rounds.forward(rank, k + ahead));
        row.emplace_back(rounds.backward(ActionKind::backward, rank, k));
    }
    return row;
}

}  // namespace

Rounds::Rounds(const PipelineShape& shape)
    : shape_(shape), size_(shape.microbatches / std::max(1, shape.microbatches / shape.ranks)) {}

std::optional<Refusal> Rounds::broken_rule(const char* name, const PipelineShape& shape) {
    const int rounds = std::max(1, shape.microbatches / shape.ranks);
    if (shape.microbatches % rounds == 0) return std::nullopt;
    return Refusal{
        Refusal::Field::microbatches,
        fmt::format("{0} on {1} ranks runs {2} micro-batches in {3} rounds, and their number must be "
                    "a multiple of the rounds",
                    name, shape.ranks, shape.microbatches, rounds)};
}

Action Rounds::forward(int rank, int k) const {
    const int round = k / (size_ * shape_.virtual_stages), within = k % (size_ * shape_.virtual_stages);
    return F(within / size_ * shape_.ranks + rank, round * size_ + within % size_);
}

Action Rounds::backward(ActionKind kind, int rank, int k) const {
    const Action mirrored = forward(rank, k);
    return {kind, (shape_.virtual_stages - 1 - mirrored.stage / shape_.ranks) * shape_.ranks + rank,
            mirrored.microbatch};
}

const Schedule interleaved = {
    "Interleaved1F1B", "1F1B with several stages on a rank", 2, Placement::loop, interleaved_rule,
    interleaved_row};

}  // namespace coeus::pipeline
