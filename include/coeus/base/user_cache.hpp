// SPDX-License-Identifier: Apache-2.0
// The user's cache folder: what Coeus measured on a machine and keeps for later runs.
#pragma once

#include <string>

namespace coeus {

/// $XDG_CACHE_HOME/coeus/NAME, or ~/.cache/coeus/NAME; empty if neither variable is set.
std::string user_cache(const std::string& name);

}  // namespace coeus
