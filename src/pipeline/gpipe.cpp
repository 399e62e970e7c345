// SPDX-License-Identifier: Apache-2.0
// GPipe (Huang et al. 2019): all forwards, then all backwards. Every micro-batch's frame is alive at once.
#include "built_in.hpp"

namespace coeus::pipeline {

namespace {

std::optional<Refusal> gpipe_rule(const PipelineShape& shape) {
    return needs_virtual_stages("GPipe", shape, 1);
}

Row gpipe_row(const PipelineShape& shape, int rank) {
    Row row;
    for (int m = 0; m < shape.microbatches; ++m) row.emplace_back(F(rank, m));
    for (int m = 0; m < shape.microbatches; ++m) row.emplace_back(B(rank, m));
    return row;
}

}  // namespace

const Schedule gpipe = {"GPipe",  "all forwards, then all backwards", 1, Placement::loop, gpipe_rule,
                        gpipe_row};

}  // namespace coeus::pipeline
