// SPDX-License-Identifier: Apache-2.0
// All ranks agree to stop, whichever of them got the signal; the time limit is that of rank 0. For one rank
// see tests/unit/job/stop.cpp.
#include "coeus/job/stop.hpp"

#include "coeus/base/error.hpp"
#include "support/catch.hpp"

#include <atomic>
#include <csignal>
#include <memory>

using namespace coeus;

namespace {

// A clock that the test sets and a scheduler's answer, shared with the thread that asks for it.
struct Job {
    std::atomic<double> now = 1000, end = 1100;
    std::atomic<int> asked = 0;
};

JobEnd::Options end_of(const std::shared_ptr<Job>& job) {
    JobEnd::Options options;
    options.start = 1000;
    options.wall_seconds = job->end - options.start;
    options.ask = [job] {
        ++job->asked;
        return std::optional<double>(job->end);
    };
    options.now = options.epoch = [job] { return double(job->now); };
    return options;
}

}  // namespace

TEST_CASE("stop: a signal to any one rank stops all ranks, which report that signal") {
    const Communicator world = Communicator::world("world");
    for (int told = 0; told < world.size(); ++told) {
        CAPTURE(told);
        const StopSignals signals;
        Stop stop(world, {}, 30);
        CHECK_FALSE(stop.agreed(1e9));
        if (world.rank() == told) raise(SIGUSR2);
        CHECK_FALSE(stop.is_agreed());
        CHECK(stop.agreed());
        CHECK(stop.is_agreed());
        CHECK(stop.reason() == "SIGUSR2");
        CHECK(stop_request() == (world.rank() == told ? SIGUSR2 : 0));
        CHECK_THROWS_AS(stop.end_if_agreed("all is kept"), StoppedError);
        CHECK_THROWS_WITH(stop.end_if_agreed("all is kept"), "Stopped by SIGUSR2: all is kept");
        CHECK_FALSE(stop.seconds_left());
    }
}

TEST_CASE("stop: ranks that got different signals report the same one") {
    const Communicator world = Communicator::world("world");
    const StopSignals signals;
    Stop stop(world, {}, 30);
    raise(world.rank() == world.size() - 1 ? SIGTERM : SIGUSR1);
    CHECK(stop.agreed());
    CHECK(stop.reason() == "SIGTERM");
}

TEST_CASE("stop: only the time limit of rank 0 counts") {
    const Communicator world = Communicator::world("world");
    const bool first = world.rank() == 0;
    const StopSignals signals;
    const auto job = std::make_shared<Job>();
    if (!first) job->end = 1001;
    Stop stop(world, end_of(job), 30);
    if (first) job->now = 1050;
    const auto needed = [&](double of_first) { return first ? of_first : 1e9; };
    CHECK_FALSE(stop.agreed(needed(20)));
    stop.end_if_agreed("all is kept");
    CHECK(stop.seconds_left() == 50);  // on all ranks
    if (first) job->now = 1051;
    if (!first) job->now = 9999;
    CHECK(stop.agreed(needed(20)));
    CHECK(stop.reason() == "the end of the job's time");
    CHECK_THROWS_WITH(stop.end_if_agreed("all is kept"), "Stopped by the end of the job's time: all is kept");
    CHECK(stop.seconds_left() == 49);
    if (!first) CHECK(job->asked == 0);
}

TEST_CASE("stop: rank 0 asks again after another rank's signal") {
    const Communicator world = Communicator::world("world");
    const StopSignals signals;
    const auto job = std::make_shared<Job>();
    Stop stop(world, end_of(job), 30);
    if (world.rank() == world.size() - 1) raise(SIGTERM);
    CHECK(stop.agreed());
    CHECK(stop.reason() == "SIGTERM");
    job->end = 1060;
    // the answer may take more than one call, the same number on all ranks
    std::optional<double> left;
    for (int i = 0; i < 30 && left != 60; ++i) left = stop.seconds_left();
    CHECK(left == 60);
    CHECK((job->asked > 0) == (world.rank() == 0));
}

TEST_CASE("stop: one small reduction at a safe point, and none after the agreement") {
    struct Reductions : CommunicationObserver {
        int count = 0;
        int64_t bytes = 0;
        int64_t begin(const std::string&, const char*, int64_t size, const std::source_location&,
                      const Queue*) override {
            ++count;
            bytes = size;
            return 0;
        }
        void end(int64_t) override {}
    } reductions;
    Communicator world = Communicator::world("world");
    if (world.size() == 1) return;  // one rank reduces nothing
    const StopSignals signals;
    Stop stop(world, {}, 30);
    world.observe(&reductions);
    CHECK_FALSE(stop.agreed());
    CHECK(reductions.count == 1);
    CHECK(reductions.bytes == 8);
    if (world.rank() == 0) raise(SIGUSR1);
    CHECK(stop.agreed());
    CHECK(reductions.count == 2);
    CHECK(stop.agreed());
    CHECK(reductions.count == 2);
    world.observe(nullptr);
}
