// SPDX-License-Identifier: Apache-2.0
// Runs that share a folder of traces do not see each other's events. A folder without events is removed at
// the end.
#include "../../../src/watchdog/meeting_place.hpp"

#include "support/catch.hpp"
#include "support/support.hpp"

#include <fstream>

using namespace coeus;
using namespace coeus::test;

namespace {

namespace fs = std::filesystem;

}  // namespace

TEST_CASE("meeting place: two runs in one folder do not see each other's events and records") {
    const TemporaryFolder folder;
    const MeetingPlace one(folder / "traces", "one", "rank_"), other(folder / "traces", "other", "rank_");
    one.prepare();
    other.prepare();
    CHECK(one.newest().number == 0);

    CHECK(one.claim(1));
    CHECK_FALSE(one.claim(1));
    one.announce(1, true);
    one.write(1, {.rank = 0, .host = "first"});
    CHECK(one.newest().number == 1);
    CHECK(one.newest().ends);
    CHECK(other.newest().number == 0);
    CHECK(other.claim(1));
    CHECK_FALSE(other.read(1, 0).has_value());
    other.write(1, {.rank = 0, .host = "second"});
    REQUIRE(one.read(1, 0).has_value());
    CHECK(one.read(1, 0)->host == "first");

    one.conclude(1, "what one was at");
    other.conclude(1, "what the other was at");
    CHECK(one.newest().over);
    CHECK(one.report_file() == other.report_file());
    std::ifstream reports(one.report_file());
    std::string first;
    std::getline(reports, first);
    CHECK(first == "what one was at");
}

TEST_CASE("meeting place: a run without events leaves nothing, and the files of others stay") {
    const TemporaryFolder folder;
    const MeetingPlace place(folder / "traces", "run", "rank_");
    place.prepare();
    place.leave();
    CHECK_FALSE(fs::exists(folder / "traces"));

    place.prepare();
    std::ofstream(folder / "traces/report.txt") << "of an earlier run";
    place.leave();
    CHECK(fs::exists(folder / "traces/report.txt"));
    CHECK_FALSE(fs::exists(folder / "traces/run"));

    place.prepare();
    place.announce(1, false);
    place.leave();
    CHECK(fs::exists(folder / "traces/run/events"));
}

TEST_CASE("meeting place: damaged lines of events are skipped") {
    const TemporaryFolder folder;
    const MeetingPlace place(folder / "traces", "run", "rank_");
    place.prepare();
    std::ofstream(folder / "traces/run/events", std::ios::app) << "9223372036854775807 ends\n-4 ends\n";
    CHECK(place.newest().number == 0);
    place.announce(2, true);
    CHECK(place.newest().number == 2);
    CHECK(place.newest().ends);
}
