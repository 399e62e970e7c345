// SPDX-License-Identifier: Apache-2.0
// The memory plan of a training run, from all that an engine will allocate.
#pragma once

#include "coeus/engine/engine.hpp"

namespace coeus {

/// Bytes per rank; `layers` as measure_training() found them. What the CPU holds for a GPU is in the host's
/// memory; token ids are on both.
MemoryPlan plan_training(const EngineOptions& options, const Decoder& decoder, const Gathered& gathered,
                         const LayerMemory& layers);

/// The communicators of a mesh that sum tensors: gradients over shards and replicas, gradients and tokens
/// over tensor-parallel ranks, and the gradients of keys where they were gathered.
std::vector<const Communicator*> summing(const Mesh& mesh, const ExchangeOptions& exchanges);

}  // namespace coeus
