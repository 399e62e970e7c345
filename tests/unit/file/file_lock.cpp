// SPDX-License-Identifier: Apache-2.0
#include "coeus/file/file_lock.hpp"

#include "coeus/base/error.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <atomic>
#include <exception>
#include <thread>

using namespace coeus;
using namespace coeus::test;

TEST_CASE("file lock: one holder at a time, a waiting process is told, and no file is left") {
    const TemporaryFolder folder;
    const auto path = (folder / "lock").string();
    const auto silent = [] { FAIL("nobody holds it"); };
    { CHECK(FileLock(path, silent).held()); }
    CHECK_FALSE(std::filesystem::exists(path));
    write_file(path, "");  // left by a killed process
    std::atomic<bool> waiting = false, inside = false;
    std::thread other;
    {
        const FileLock lock(path, silent);
        other = std::thread([&] {
            const FileLock second(path, [&] {
                waiting = true;
                waiting.notify_all();
            });
            inside = true;
            if (!second.held() || !std::filesystem::exists(path)) std::terminate();
        });
        waiting.wait(false);
        CHECK_FALSE(inside);
    }
    other.join();
    CHECK(inside);
    CHECK_FALSE(std::filesystem::exists(path));
    CHECK_THROWS_AS(FileLock((folder / "none" / "lock").string(), silent), SystemError);
}
