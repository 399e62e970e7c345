// SPDX-License-Identifier: Apache-2.0
// 1F1B (PipeDream-Flush, Narayanan et al. 2021): rank r first runs P - r forwards, then alternates one
// backward and one forward, so that no rank keeps more than P frames. With fewer micro-batches than ranks, it
// runs all forwards first.
#include "built_in.hpp"

#include <algorithm>

namespace coeus::pipeline {

namespace {

std::optional<Refusal> one_f_one_b_rule(const PipelineShape& shape) {
    return needs_virtual_stages("1F1B", shape, 1);
}

Row one_f_one_b_row(const PipelineShape& shape, int rank) {
    const int ahead = std::min(shape.ranks - rank, shape.microbatches);
    Row row;
    for (int m = 0; m < ahead; ++m) row.emplace_back(F(rank, m));
    for (int m = 0; m < shape.microbatches; ++m) {
        row.emplace_back(B(rank, m));
        if (m + ahead < shape.microbatches) row.emplace_back(F(rank, m + ahead));
    }
    return row;
}

}  // namespace

const Schedule one_f_one_b = {
    "1F1B", "one forward, one backward in turn", 1, Placement::loop, one_f_one_b_rule, one_f_one_b_row};

}  // namespace coeus::pipeline
