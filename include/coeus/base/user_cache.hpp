// SPDX-License-Identifier: Apache-2.0
// Where a user keeps what is found out about machines from one run to the next.
#pragma once

#include <string>

namespace coeus {

/// $XDG_CACHE_HOME/coeus/NAME, or ~/.cache/coeus/NAME; "" where there is neither.
std::string user_cache(const std::string& name);

}  // namespace coeus
