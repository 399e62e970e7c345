// SPDX-License-Identifier: Apache-2.0
// The message at the start of a run about a lack of room for its checkpoints.
#include "coeus/io/checkpoint_room.hpp"

#include "support/catch.hpp"

using namespace coeus;
using Catch::Contains;

TEST_CASE(
    "checkpoint room: an error without room for one, a warning without room for all, otherwise nothing") {
    constexpr int64_t mib = 1 << 20;
    CHECK(room_warning(mib, 11, "f", 11 * mib).empty());
    CHECK_THAT(room_warning(mib, 11, "f", 11 * mib - 1),
               Contains("room for only 10 of the 11 checkpoints") &&
                   Contains("1.00 MiB each in f, where 11.0 MiB are") &&
                   Contains("lower checkpoint.keep_latest_k"));
    CHECK(room_warning(mib, 1, "f", mib).empty());
    CHECK_THROWS_WITH(room_warning(2 * mib, 1, "f", mib),
                      Contains("no room for a checkpoint: 2.00 MiB needed in f, where 1.00 MiB are free"));
    CHECK_THROWS_WITH(require_room(2 * mib, "f", mib),
                      Contains("2.00 MiB needed in f, where 1.00 MiB are free"));
    CHECK_NOTHROW(require_room(mib, "f", mib));
    CHECK(checkpoint_bytes(100, 2) == 100 + mib + 2 * (16 << 10));
}
