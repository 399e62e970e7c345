// SPDX-License-Identifier: Apache-2.0
// When a run is told to stop, and by what, with a clock that the test sets. For several ranks see
// tests/mpi/comm/stop.cpp.
#include "coeus/job/stop.hpp"

#include "coeus/base/clock.hpp"
#include "coeus/base/error.hpp"
#include "support/catch.hpp"
#include "support/patience.hpp"
#include "support/support.hpp"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <memory>

using namespace coeus;
using namespace coeus::test;

namespace {

// A job that ends at 1100 on the test's clock. It is shared with the thread that asks, which may outlive a
// test.
struct Job {
    std::atomic<double> now = 1000, end = 1100;
    std::atomic<int> asked = 0;
    std::atomic<bool> silent = false;
};
using SharedJob = std::shared_ptr<Job>;

JobEnd::Options by_deck(const SharedJob& job) {
    JobEnd::Options options;
    options.start = 1000;
    options.wall_seconds = job->end - options.start;
    options.now = options.epoch = [job] { return double(job->now); };
    return options;
}

JobEnd::Options by_scheduler(const SharedJob& job) {
    JobEnd::Options options;
    options.ask = [job] {
        ++job->asked;
        job->silent.wait(true);
        return std::optional<double>(job->end);
    };
    options.now = options.epoch = [job] { return double(job->now); };
    return options;
}

// Asks until the condition holds. Returns false if it does not in a time in which it must.
template <class Condition>
bool comes_true(const Condition& condition) {
    const Timer timer;
    while (!condition()) {
        if (timer.seconds() > patience(60)) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
}

}  // namespace

TEST_CASE("stop: agreed when less time is left than the margin and the needed time") {
    struct Moment {
        double margin, now, needed;
        bool agreed;
    };
    // if only the margin is left, the thread of JobEnd notes the same
    for (const Moment& m :
         {Moment{30, 1049, 20, false}, Moment{30, 1050, 20, false}, Moment{30, 1051, 20, true},
          Moment{30, 1069, 0, false}, Moment{30, 1069, 1, false}, Moment{30, 1069, 2, true},
          Moment{30, 1071, 0, true}, Moment{30, 1000, 70, false}, Moment{30, 1000, 71, true},
          Moment{0, 1080, 20, false}, Moment{0, 1081, 20, true}, Moment{0, 1099, 0, false},
          Moment{0, 1200, 0, true}, Moment{1e9, 1000, 0, true}}) {
        CAPTURE(m.margin, m.now, m.needed);
        const auto job = std::make_shared<Job>();
        job->now = m.now;
        Stop stop(alone(), by_deck(job), m.margin);
        CHECK_FALSE(stop.is_agreed());
        CHECK(stop.reason().empty());
        CHECK(stop.agreed(m.needed) == m.agreed);
        CHECK(stop.is_agreed() == m.agreed);
        CHECK(stop.reason() == (m.agreed ? "the end of the job's time" : ""));
    }
}

TEST_CASE("stop: agreed when there is no time for another step, and not revoked") {
    const StopSignals signals;
    const auto job = std::make_shared<Job>();
    Stop stop(alone(), by_deck(job), 30);
    for (const double now : {1000, 1010, 1049, 1050}) {
        job->now = now;
        CHECK_FALSE(stop.agreed(20));
    }
    stop.end_if_agreed("nothing was lost");  // only the margin is still left
    CHECK_FALSE(stop.is_agreed());
    job->now = 1051;
    CHECK(stop.agreed(20));
    CHECK(stop.seconds_left() == 49);
    job->now = 1000;
    raise(SIGTERM);
    CHECK(stop.agreed(0));
    CHECK(stop.is_agreed());
    CHECK(stop.reason() == "the end of the job's time");
    CHECK_THROWS_AS(stop.end_if_agreed("nothing was lost"), StoppedError);
    CHECK_THROWS_WITH(stop.end_if_agreed("nothing was lost"),
                      "Stopped by the end of the job's time: nothing was lost");
    job->now = 1150;
    CHECK(stop.seconds_left() == -50);
}

TEST_CASE("stop: a signal has priority over the end of the time, and is named") {
    struct Signal {
        int number;
        const char* name;
    };
    for (const Signal& signal :
         {Signal{SIGUSR1, "SIGUSR1"}, Signal{SIGUSR2, "SIGUSR2"}, Signal{SIGTERM, "SIGTERM"}})
        for (const bool out_of_time_too : {false, true}) {
            CAPTURE(signal.name, out_of_time_too);
            const auto job = std::make_shared<Job>();
            Stop stop(alone(), out_of_time_too ? by_deck(job) : JobEnd::Options(), 30);
            {
                const StopSignals signals;
                CHECK_FALSE(stop.agreed(out_of_time_too ? 0 : 1e9));
                stop.end_if_agreed("before training");
                job->now = 1099;
                raise(signal.number);
                CHECK_FALSE(stop.is_agreed());  // no rank was at a safe point
                CHECK(stop.reason().empty());
                CHECK_THROWS_WITH(stop.end_if_agreed("before training"),
                                  fmt::format("Stopped by {}: before training", signal.name));
                CHECK(stop.is_agreed());
            }
            CHECK(stop_request() != signal.number);  // forgotten
            CHECK(stop.agreed());
            CHECK(stop.reason() == signal.name);
            CHECK(stop.seconds_left() == (out_of_time_too ? std::optional<double>(1) : std::nullopt));
        }
}

TEST_CASE("stop: the scheduler is asked again after a signal, but not after the end of the time") {
    const StopSignals signals;
    {
        const auto job = std::make_shared<Job>();
        Stop stop(alone(), by_scheduler(job), 30);
        CHECK(comes_true([&] { return stop.agreed(71); }));  // once there is an answer
        job->end = 5000;
        CHECK(stop.seconds_left() == 100);
        CHECK(job->asked == 1);
    }
    const auto job = std::make_shared<Job>();
    job->end = 5000;
    Stop stop(alone(), by_scheduler(job), 30);
    CHECK(comes_true([&] { return stop.seconds_left() == 4000; }));
    CHECK_FALSE(stop.agreed(20));
    raise(SIGUSR1);
    CHECK(stop.agreed(20));
    job->end = 1060;  // a grace time
    CHECK(comes_true([&] { return stop.seconds_left() == 60; }));
    CHECK(job->asked >= 2);
    job->silent = true;
    job->end = 1050;
    CHECK(stop.seconds_left() == 60);  // no answer: the last known time
    job->silent = false;
    job->silent.notify_all();
}

TEST_CASE("stop: squeue is asked for the time left after a signal") {
    const TemporaryFolder folder;
    const auto tell = [&](const std::string& end) { write_file(folder / "end", end + "\n"); };
    write_file(folder / "squeue", "#!/bin/sh\ncat " + (folder / "end").string() + "\n");
    std::filesystem::permissions(folder / "squeue", std::filesystem::perms::owner_all);
    const std::string path = std::getenv("PATH");
    setenv("PATH", (folder.path().string() + ":" + path).c_str(), 1);
    setenv("SLURM_JOB_ID", "123", 1);
    tell("1700003600");
    {
        const StopSignals signals;
        JobEnd::Options options;
        options.ask = slurm_job_end;
        options.now = options.epoch = [] { return 1.7e9; };
        Stop stop(alone(), options, 30);
        CHECK(comes_true([&] { return stop.seconds_left() == 3600; }));
        CHECK_FALSE(stop.agreed(3570));
        raise(SIGTERM);
        tell("1700000045");
        CHECK(stop.agreed(3570));
        CHECK(stop.reason() == "SIGTERM");
        CHECK(comes_true([&] { return stop.seconds_left() == 45; }));
        tell("slurm_load_jobs error: Unable to contact slurm controller");
        CHECK(stop.seconds_left() == 45);
    }
    setenv("PATH", path.c_str(), 1);
    unsetenv("SLURM_JOB_ID");
}

TEST_CASE("stop: the end known by ranks other than 0 is ignored") {
    const Communicator second = Communicator::planned(1, 2, "world");
    const auto job = std::make_shared<Job>();
    JobEnd::Options both = by_scheduler(job);
    both.start = 1000;
    both.wall_seconds = 10;
    Stop stop(second, both, 30);
    CHECK_FALSE(stop.agreed(1e9));
    stop.end_if_agreed("nothing was lost");
    CHECK(job->asked == 0);
}
