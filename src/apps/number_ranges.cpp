// SPDX-License-Identifier: Apache-2.0
#include "number_ranges.hpp"

#include "coeus/base/error.hpp"

#include <charconv>
#include <system_error>

namespace coeus::apps {

std::pair<int64_t, int64_t> number_range(const std::string& flag, const std::string& text) {
    int64_t first = -1, last = -1;
    const char* const end = text.data() + text.size();
    auto read = std::from_chars(text.data(), end, first);
    bool is_number = read.ec == std::errc();
    last = first;
    if (is_number && read.ptr != end && *read.ptr == '-') {
        read = std::from_chars(read.ptr + 1, end, last);
        is_number = read.ec == std::errc();
    }
    if (!is_number || read.ptr != end || first < 0 || last < first)
        throw ConfigError("{} {}: must be a number, or two as in 10-20, of which the second is not smaller",
                          flag, text);
    return {first, last};
}

}  // namespace coeus::apps
