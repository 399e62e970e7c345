// SPDX-License-Identifier: Apache-2.0
// The phases of a start.
#include "coeus/observe/start_up.hpp"

#include "support/catch.hpp"

using namespace coeus;

namespace {

double start_clock = 0;

}  // namespace

TEST_CASE("start-up: phases, and the time outside of them") {
    start_clock = 100;
    StartUp start_up(0.5, [] { return start_clock; });
    start_up.phase("MPI", [] { start_clock += 2; });
    start_clock += 0.25;
    CHECK(start_up.phase("deck", [] { return start_clock += 1, 7; }) == 7);
    start_up.phase("MPI", [] { start_clock += 1; });
    CHECK_THROWS(start_up.phase("data", [] {
        start_clock += 1;
        throw 1;
    }));
    CHECK(start_up.end() == 5.75);
    start_clock += 10;
    CHECK(start_up.end() == 5.75);
    CHECK(start_up.text() == "Start-up 5.8 s: program 0.5, MPI 3.0, deck 1.0, data 1.0, other 0.2");
}

TEST_CASE("start-up: a process knows its age") {
    const double age = StartUp::seconds_since_exec();
    CHECK(age >= 0);
    CHECK(age < 24 * 3600);
    const double later = StartUp::seconds_since_exec();
    CHECK(later >= age);
}
