// SPDX-License-Identifier: Apache-2.0
// What the backward computes again, block by block, and what that saves and costs: found by planning the
// choices, not by formulas of their own.
#pragma once

#include "coeus/layers/recompute.hpp"
#include "coeus/plan/layer_memory.hpp"

#include <functional>

namespace coeus {

/// What a run asks for ([activation_checkpoint]).
struct RecomputeOptions {
    enum class Mode : uint8_t {
        nothing,
        operations,  ///< of every block
        blocks,      ///< every n-th whole
        budget       ///< the least computation whose frame fits
    };
    Mode mode = Mode::nothing;
    int64_t every = 1;  ///< blocks: with 2 the second, the fourth, ... (torchtitan's counting)
    double budget = 1;  ///< between the frames of all blocks computed again (0) and of none (1)
};

struct RecomputePlan {
    std::vector<Recompute> blocks;  ///< one for each block of the model; empty: nothing
    int64_t frame = 0;              ///< bytes of a micro-batch's frame, of the planned rank's stages
    int64_t frame_without = 0;      ///< the same where nothing is computed again
    double extra = 0;               ///< share of the rank's arithmetic of forward and backward on top of it

    /// "Recomputed in the backward: ..." in one line, counting these layers: those of a rank. "" if nothing
    /// is.
    std::string text(const std::vector<size_t>& layers) const;
};

/// Plans a micro-batch's training with such choices for the blocks.
using PlanOfChoices = std::function<LayerMemory(const std::vector<Recompute>&)>;

RecomputePlan plan_recompute(const RecomputeOptions& options, int64_t layers, const PlanOfChoices& plan_of);

}  // namespace coeus
