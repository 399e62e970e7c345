// SPDX-License-Identifier: Apache-2.0
// The memory plan of a training run: everything that an engine will allocate.
#pragma once

#include "coeus/engine/engine.hpp"

namespace coeus {

/// The plan of a rank, from the result of measure_training(). Memory that the CPU holds for a GPU is counted
/// as host memory; batches are on both.
MemoryPlan plan_training(const EngineOptions& options, const Model& model, const OneScaleWeights& weights,
                         const Gathered& gathered, const LayerMemory& layers);

/// The communicators of a mesh that sum tensors: gradients over shards and replicas, gradients and tokens
/// over tensor-parallel ranks, and gradients of keys and values that were gathered.
std::vector<const Communicator*> summing(const Mesh& mesh, const ExchangeOptions& exchanges);

}  // namespace coeus
