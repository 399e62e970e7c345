// SPDX-License-Identifier: Apache-2.0
// Activation checkpointing: which blocks are recomputed in the backward, and what that saves and costs. The
// choices are compared by planning them, not by separate formulas.
#pragma once

#include "coeus/layers/recompute.hpp"
#include "coeus/plan/layer_memory.hpp"

#include <functional>

namespace coeus {

/// The request of a run ([activation_checkpoint]).
struct RecomputeOptions {
    enum class Mode : uint8_t {
        nothing,
        operations,  ///< the operations of every block
        blocks,      ///< every n-th block as a whole
        budget       ///< the fewest FLOPs with which the frame fits the budget
    };
    Mode mode = Mode::nothing;
    int64_t every = 1;  ///< for blocks: 2 means the second, the fourth, ... (torchtitan's counting)
    double budget = 1;  ///< from 0 (the frame if all blocks are recomputed) to 1 (if none is)
};

/// The choices for the blocks of a model, and what they save and cost.
struct RecomputePlan {
    std::vector<Recompute> blocks;  ///< one for each block of the model; empty: nothing is recomputed
    int64_t frame = 0;              ///< bytes of a micro-batch's frame on the planned rank
    int64_t frame_without = 0;      ///< the same without recomputation
    double extra = 0;               ///< extra FLOPs, as a fraction of the rank's forward and backward

    /// One line, "Activation checkpointing recomputes ...", which counts the given layers, those of a rank.
    /// Empty if nothing is recomputed.
    std::string text(const std::vector<size_t>& layers) const;
};

/// Plans the training of a micro-batch with these choices for the blocks.
using PlanOfChoices = std::function<LayerMemory(const std::vector<Recompute>&)>;

/// The choices alone. Only a budget needs plans, so this is much faster.
std::vector<Recompute> choose_recompute(const RecomputeOptions& options, int64_t layers,
                                        const PlanOfChoices& plan_of);
RecomputePlan plan_recompute(const RecomputeOptions& options, int64_t layers, const PlanOfChoices& plan_of);

}  // namespace coeus
