// SPDX-License-Identifier: Apache-2.0
// The size of the chunks in which a GPU's head computes logits: that of the deck, else that of the checkpoint
// from which the run resumes, else the largest of gpu_chunk_bytes, if every rank fits into its GPU with it.
// All ranks have the same, since it decides in which order the head's gradient is summed.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/config/config.hpp"
#include "coeus/engine/engine.hpp"

#include <optional>
#include <string>

namespace coeus {

/// For planning: `options` with the largest chunks, at most `of_checkpoint` bytes, with which the plan of
/// each stage is at most `limit` bytes. If none fits: the smallest. If the limit is not known: the largest.
/// Options for CPUs, and options that have a size, do not change.
EngineOptions with_largest_chunks(const ModelConfig& model, const EngineOptions& options,
                                  std::optional<int64_t> limit,
                                  std::optional<int64_t> of_checkpoint = std::nullopt);
/// For a run: with the largest chunks with which the plan of each rank is at most its own `limit`.
/// Collective.
EngineOptions with_largest_chunks(const ModelConfig& model, const EngineOptions& options, int64_t limit,
                                  const Communicator& world, std::optional<int64_t> of_checkpoint);
/// The text of a notice if the chunks of a run with `options` are smaller than the largest, or than the
/// checkpoint's; "" if not, or if the deck chooses the size itself.
std::string notice_on_chunks(const Config& config, const EngineOptions& options,
                             std::optional<int64_t> of_checkpoint);

}  // namespace coeus
