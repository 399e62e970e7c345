// SPDX-License-Identifier: Apache-2.0
// The memory plan of a training run: everything that an engine will allocate.
#pragma once

#include "coeus/engine/engine.hpp"

namespace coeus {

/// The bytes of what a rank keeps for weights in 8 bits besides the weights.
struct WeightsIn8Bits {
    int64_t scales = 0;    ///< OneScaleWeights
    int64_t operands = 0;  ///< KeptOperands
};

/// The plan of a rank, from the result of measure_training(). Memory that the CPU holds for a GPU is counted
/// as host memory; batches are on both. `logits`: those of Engine::predict(); null: the rank has none.
MemoryPlan plan_training(const EngineOptions& options, const Model& model, const WeightsIn8Bits& weights,
                         const Gathered& gathered, const LayerMemory& layers, const GatheredLogits* logits);

/// The communicators of a mesh that sum tensors: gradients over shards and replicas, gradients and tokens
/// over tensor-parallel ranks, and gradients of keys and values that were gathered; scores of tokens.
std::vector<const Communicator*> summing(const Mesh& mesh, const EngineOptions& options);

}  // namespace coeus
