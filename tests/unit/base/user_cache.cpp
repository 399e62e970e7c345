// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/user_cache.hpp"

#include "support/catch.hpp"

#include <cstdlib>

using namespace coeus;

TEST_CASE("a user's cache is under XDG_CACHE_HOME or HOME") {
    const char* home = std::getenv("HOME");
    const char* cache = std::getenv("XDG_CACHE_HOME");
    const std::string old_home = home ? home : "", old_cache = cache ? cache : "";
    setenv("XDG_CACHE_HOME", "/x", 1);
    CHECK(user_cache("peaks") == "/x/coeus/peaks");
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", "/home/someone", 1);
    CHECK(user_cache("peaks") == "/home/someone/.cache/coeus/peaks");
    unsetenv("HOME");
    CHECK(user_cache("peaks") == "");
    if (home) setenv("HOME", old_home.c_str(), 1);
    if (cache) setenv("XDG_CACHE_HOME", old_cache.c_str(), 1);
}
