// SPDX-License-Identifier: Apache-2.0
// Whether weights in 8 bits are kept for a step (layers/kept_operands.hpp): on a GPU, if several
// micro-batches of a step use them, and every rank fits into its GPU with them. The bits of the results do
// not depend on it.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/engine/engine.hpp"

#include <optional>
#include <string>

namespace coeus {

/// For planning: `options` with kept weights if the plan of each stage is at most `limit` bytes with them, or
/// if the limit is not known.
EngineOptions with_kept_operands(const ModelConfig& model, const EngineOptions& options,
                                 std::optional<int64_t> limit);
/// For a run: if the plan of each rank is at most its own `limit`. Collective.
EngineOptions with_kept_operands(const ModelConfig& model, const EngineOptions& options, int64_t limit,
                                 const Communicator& world);
/// The text of a notice if a rank would not fit into its GPU with kept weights; "" if it does, or if the run
/// would not gain from them.
std::string notice_on_operands(const EngineOptions& options);

}  // namespace coeus
