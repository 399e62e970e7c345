// SPDX-License-Identifier: Apache-2.0
// Dry run: checks a deck and plans its memory for any number of ranks. Nothing is trained.
#pragma once

#include "coeus/config/config.hpp"

namespace coeus {

/// `coeus train --dry_run`: logs preflight() for the number of ranks that the command line gives, or else for
/// `world_size`. Reasons to refuse a run are logged as warnings, and the last line counts them. Returns
/// Findings::exit_code() with --strict. ConfigError as preflight().
int dry_run(const CommandLine& command_line, int world_size);

}  // namespace coeus
