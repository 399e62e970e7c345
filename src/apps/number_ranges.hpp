// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace coeus::apps {

/// "10-20" or "10", both ends included. ConfigError naming the flag and the text for anything else.
std::pair<int64_t, int64_t> number_range(const std::string& flag, const std::string& text);

}  // namespace coeus::apps
