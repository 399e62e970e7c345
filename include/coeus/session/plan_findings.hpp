// SPDX-License-Identifier: Apache-2.0
// What is told of a plan before anything runs. A start, a dry run and `coeus info DECK` tell the same.
#pragma once

#include "coeus/predict/memory_advice.hpp"
#include "coeus/session/planned_run.hpp"
#include "coeus/setup/finding.hpp"

#include <optional>

namespace coeus {

/// Mesh, model, batches, types, memory, chunks, products and layers of 8 bits of a run with this engine, and
/// warnings on them. `memory_limit`: bytes that a rank may use; none: not known. `of_checkpoint`: as
/// chunks_of_checkpoint().
Findings plan_findings(const Config& config, const MeshShape& mesh, const Engine& engine,
                       std::optional<int64_t> memory_limit, std::optional<int64_t> of_checkpoint);
/// The device that the run is planned for, and these findings.
Findings plan_findings(const PlannedRun& planned);

/// A refusal if a rank does not fit into the device's memory, with the cheapest change that makes it fit. A
/// hint if much memory is free although activations are recomputed. advice_holds() has checked every advice.
Findings memory_findings(const PlannedRun& planned);

/// True if the deck with the settings of `advice` is valid on the ranks of `advice`, and its memory plan is
/// not larger than the plan that the advice promises.
bool advice_holds(const Config& config, const ModelConfig& model, const Alternative& advice);

}  // namespace coeus
