// SPDX-License-Identifier: Apache-2.0
// A dry run: a deck is checked and planned for any number of ranks, and nothing runs.
#pragma once

#include "coeus/config/config.hpp"
#include "coeus/device/device.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace coeus {

/// As if a rank were alone on this host: its memory, or that of its first GPU; none where a run is planned
/// for a GPU that is not here.
std::optional<int64_t> memory_limit_here(Backend backend);

/// Validates deck and mesh for any number of ranks, and says in lines what would run; runs nothing.
/// ConfigError as a run would have.
std::vector<std::string> dry_run_lines(const CommandLine& command_line, int ranks);
/// `coeus train --dry_run`: logs them, for the ranks that the command line names, or else `world_size`.
/// Why a run would be refused are warnings, and counted in the last line.
void dry_run(const CommandLine& command_line, int world_size);

}  // namespace coeus
