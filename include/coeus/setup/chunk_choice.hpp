// SPDX-License-Identifier: Apache-2.0
// The size of the chunks in which a GPU's head computes logits (gpu_chunk_bytes): the largest with which
// every rank fits into its GPU. All ranks have the same, since it decides in which order the head's gradient
// is summed.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/engine/engine.hpp"

#include <optional>

namespace coeus {

/// For planning: `options` with the largest chunks with which the plan of each stage is at most `limit`
/// bytes. If none fits: the smallest. If the limit is not known: the largest. Options for CPUs do not change.
EngineOptions with_largest_chunks(const DecoderConfig& model, const EngineOptions& options,
                                  std::optional<int64_t> limit);
/// For a run: with the largest chunks with which the plan of each rank is at most its own `limit`.
/// Collective.
EngineOptions with_largest_chunks(const DecoderConfig& model, const EngineOptions& options, int64_t limit,
                                  const Communicator& world);

}  // namespace coeus
