// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/error_text.hpp"

#include "coeus/base/error.hpp"
#include "support/catch.hpp"

#include <cerrno>
#include <new>
#include <stdexcept>
#include <system_error>

using namespace coeus;
using Catch::Contains;

TEST_CASE("error text: lack of memory or of threads is described in words") {
    CHECK_THAT(text_of(std::bad_alloc()), Contains("out of memory"));
    const auto error = [](std::errc code) { return std::system_error(std::make_error_code(code)); };
    CHECK_THAT(text_of(error(std::errc::resource_unavailable_try_again)),
               Contains("a thread cannot be started: Resource temporarily unavailable; check `ulimit -u`"));
    CHECK(text_of(error(std::errc::permission_denied)) == "Permission denied");
    CHECK(text_of(std::runtime_error("as it is")) == "as it is");
}

TEST_CASE("error text: a path that cannot be right is told from a system that fails") {
    for (const int mistake : {ELOOP, ENAMETOOLONG, ENOTDIR, EISDIR}) CHECK(blames_path(mistake));
    for (const int failure : {0, EIO, ESTALE, ENOSPC, EMFILE, ENOENT, EACCES})
        CHECK_FALSE(blames_path(failure));
    CHECK_THROWS_AS(fail_at_path("x: a loop", ELOOP), ConfigError);
    CHECK_THROWS_WITH(fail_at_path("x: no room", ENOSPC), Contains("x: no room ["));
    CHECK_THROWS_AS(fail_at_path("x: no room", ENOSPC), SystemError);
}
