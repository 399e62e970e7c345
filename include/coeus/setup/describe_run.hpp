// SPDX-License-Identifier: Apache-2.0
// The description of a run that is logged before its first step.
#pragma once

#include "coeus/comm/mesh.hpp"
#include "coeus/config/config.hpp"
#include "coeus/engine/engine.hpp"
#include "coeus/setup/finding.hpp"

#include <cstdint>
#include <optional>

namespace coeus {

/// Facts and notices on mesh, model, batches and memory, the same for a run and a dry run. `memory_limit`:
/// bytes that a rank may use; none: not known.
Findings describe_run(const Config& config, const MeshShape& mesh, const Engine& engine,
                      std::optional<int64_t> memory_limit);

}  // namespace coeus
