// SPDX-License-Identifier: Apache-2.0
// LoopedBFS (Lamy-Poirier 2023, breadth-first pipelines): each rank has several stages, each of which
// processes all micro-batches before the next one. Each stage's weights are needed only twice a step, without
// interruption, which suits FSDP.
#include "built_in.hpp"

namespace coeus::pipeline {

namespace {

std::optional<Refusal> looped_bfs_rule(const PipelineShape&) {
    return std::nullopt;
}

Row looped_bfs_row(const PipelineShape& shape, int rank) {
    Row row;
    for (int stage = rank; stage < shape.stages(); stage += shape.ranks)
        for (int m = 0; m < shape.microbatches; ++m) row.emplace_back(F(stage, m));
    for (int stage = shape.stages() - shape.ranks + rank; stage >= 0; stage -= shape.ranks)
        for (int m = shape.microbatches - 1; m >= 0; --m) row.emplace_back(B(stage, m));
    return row;
}

}  // namespace

const Schedule looped_bfs = {
    "LoopedBFS",   "GPipe with several stages on a rank, stage by stage", 2, Placement::loop, looped_bfs_rule,
    looped_bfs_row};

}  // namespace coeus::pipeline
