// SPDX-License-Identifier: Apache-2.0
#include "number_ranges.hpp"

#include "coeus/base/error.hpp"

#include <charconv>

namespace coeus::apps {

std::pair<int64_t, int64_t> number_range(const std::string& flag, const std::string& text) {
    int64_t first = -1, last = -1;
    const char* const end = text.data() + text.size();
    const char* at = std::from_chars(text.data(), end, first).ptr;
    last = first;
    if (at != end && *at == '-') at = std::from_chars(at + 1, end, last).ptr;
    if (at != end || first < 0 || last < first)
        throw ConfigError("{} {}: must be a number, or two as in 10-20, of which the second is not smaller",
                          flag, text);
    return {first, last};
}

}  // namespace coeus::apps
