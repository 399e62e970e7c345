// SPDX-License-Identifier: Apache-2.0
// Everything that is known about a training before it starts: its plan, and the files that it reads and
// writes.
#pragma once

#include "coeus/config/config.hpp"
#include "coeus/setup/finding.hpp"

namespace coeus {

/// Looks at deck, mesh, plan, data, weights and folders of a training on `ranks` ranks. Nothing is allocated,
/// run or written. The command line is one of a dry run. ConfigError for mistakes without which there is no
/// plan; every other reason to refuse a run is a finding.
Findings preflight(const CommandLine& command_line, int ranks);

}  // namespace coeus
