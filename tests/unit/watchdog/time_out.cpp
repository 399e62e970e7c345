// SPDX-License-Identifier: Apache-2.0
// When the watchdog reports, on a clock that the test sets.
#include "../../../src/watchdog/time_out.hpp"

#include "support/catch.hpp"

#include <algorithm>
#include <string>

using namespace coeus;

namespace {

// The time of the first check that finds the operation overdue. `suspended`: seconds without a check before
// `resumed`.
double reported_at(TimeOut& time_out, const Operation& operation, double resumed = 0, double suspended = 0) {
    for (double now = 100;; now += time_out.pause()) {
        if (suspended > 0 && now >= resumed - suspended && now < resumed) now = resumed;
        time_out.look(now);
        if (time_out.overdue(operation, now)) return now;
        REQUIRE(now < 1e4);
    }
}

}  // namespace

TEST_CASE("time-out: an operation is reported at the first check after it") {
    for (const double seconds : {0.05, 2.0, 5.0, 100.0}) {
        CAPTURE(seconds);
        TimeOut time_out(seconds, "an option");
        CHECK(time_out.pause() <= std::max(seconds / 10, 0.01));
        CHECK(time_out.pause() <= 1);
        CHECK(time_out.pause() >= 0.01);
        for (const double allowance : {0.0, 7.0}) {
            const Operation operation = {
                .began = 103.21, .allowance = allowance, .kind = OperationKind::collective};
            const double due = operation.began + seconds + allowance,
                         reported = reported_at(time_out, operation);
            CHECK(reported > due);
            CHECK(reported <= due + time_out.pause() * 1.001);
            CHECK(*time_out.overdue(operation, reported) == reported - operation.began);
        }
    }
}

TEST_CASE(
    "time-out: operations that have ended, may take any time, or were given to a GPU are not reported") {
    const TimeOut time_out(2, "an option");
    const auto overdue = [&](OperationKind kind, double ended) {
        return time_out.overdue({.began = 1, .ended = ended, .kind = kind}, 1000).has_value();
    };
    CHECK(overdue(OperationKind::file, 0));
    CHECK(overdue(OperationKind::data, 0));
    CHECK_FALSE(overdue(OperationKind::file, 5));
    CHECK_FALSE(overdue(OperationKind::patient, 0));
    CHECK_FALSE(overdue(OperationKind::queued, 0));
    CHECK_FALSE(overdue(OperationKind::graph, 0));
}

TEST_CASE("time-out: time without checks, as in a suspended job, does not count, but a late check does") {
    const Operation operation = {.began = 100, .kind = OperationKind::message};
    TimeOut suspended(4, "an option"), late(4, "an option");
    CHECK(reported_at(suspended, operation, 150, 47) > 154);
    CHECK(suspended.resumed() == 150);
    // less than half of the time-out, plus a second
    CHECK(reported_at(late, operation, 103, 2.5) <= 104.5);
    CHECK(late.resumed() == 0);
}

TEST_CASE("time-out: a changed one counts from the next check on") {
    TimeOut time_out(300, "of the start");
    const Operation operation = {.began = 0, .kind = OperationKind::driver};
    CHECK_FALSE(time_out.overdue(operation, 200));
    time_out.set(100, "of steps");
    CHECK(time_out.overdue(operation, 200) == 200.0);
    CHECK(time_out.option() == std::string("of steps"));
    CHECK(time_out.seconds() == 100);
}
