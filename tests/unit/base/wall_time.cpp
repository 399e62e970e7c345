// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/wall_time.hpp"

#include "support/catch.hpp"

#include <utility>

using namespace coeus;

TEST_CASE("wall times are read as Slurm writes them") {
    const std::pair<const char*, double> times[] = {
        {"90", 5400},     {"0", 0},           {"12:30", 750},         {"23:30:00", 84600},   {"1-0", 86400},
        {"2-12", 216000}, {"1-01:30", 91800}, {"1-12:00:01", 129601}, {"100:00:00", 360000}, {"00:03", 3},
    };
    for (const auto& [text, seconds] : times) {
        INFO(text);
        REQUIRE(seconds_of_wall_time(text));
        CHECK(*seconds_of_wall_time(text) == seconds);
    }
    for (const char* text :
         {"", "x", "1:2:3:4", "-5", "1-", "-", "1:", ":1", "1 h", "1.5", "1-2-3", "1-1:1:1:1"}) {
        INFO(text);
        CHECK_FALSE(seconds_of_wall_time(text));
    }
}
