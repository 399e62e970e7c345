// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/user_cache.hpp"

#include <cstdlib>

namespace coeus {

std::string user_cache(const std::string& name) {
    if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache)
        return std::string(cache) + "/coeus/" + name;
    if (const char* home = std::getenv("HOME"); home && *home)
        return std::string(home) + "/.cache/coeus/" + name;
    return "";
}

}  // namespace coeus
