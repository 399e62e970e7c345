// SPDX-License-Identifier: Apache-2.0
#include "coeus/job/job_end.hpp"

#include "coeus/base/stop_signals.hpp"
#include "support/catch.hpp"
#include "support/patience.hpp"
#include "support/support.hpp"

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <mutex>

using namespace coeus;
using namespace coeus::test;

TEST_CASE(
    "the end of a job is the earlier one of the deck's and the scheduler's, which is asked repeatedly") {
    double now = 1000;
    std::optional<double> told;
    std::mutex mutex;
    JobEnd::Options options;
    options.wall_seconds = 500;
    options.start = 1000;
    options.now = options.epoch = [&] { return now; };
    {
        const JobEnd own(options);
        CHECK(own.seconds_left() == 500);
        now = 1600;
        CHECK(own.seconds_left() == -100);
    }
    now = 1100;
    options.ask = [&] {
        const std::lock_guard lock(mutex);
        return told;
    };
    JobEnd end(options);
    end.ask_again(patience(60));
    CHECK(end.seconds_left() == 400);
    const auto tell = [&](std::optional<double> time) {
        {
            const std::lock_guard lock(mutex);
            told = time;
        }
        end.ask_again(patience(60));
    };
    tell(1150);
    CHECK(end.seconds_left() == 50);
    tell(9999);  // the limit was raised
    CHECK(end.seconds_left() == 400);
    tell(1200);
    tell(std::nullopt);  // no answer
    CHECK(end.seconds_left() == 100);
}

TEST_CASE("the end of the time is noted as long before the end as the margin says") {
    std::atomic<double> told = 5000;
    JobEnd::Options options;
    options.now = options.epoch = [] { return 1000.0; };
    options.ask = [&] { return std::optional<double>(told); };
    {
        JobEnd end(options, 30);
        const auto tell = [&](double time) {
            told = time;
            end.ask_again(patience(60));
            end.ask_again(patience(60));  // by now the first answer has been used
            return stop_request();
        };
        CHECK(tell(1031) == 0);
        CHECK(tell(1029) == out_of_time);
        CHECK(tell(5000) == out_of_time);  // too late
    }
    CHECK(stop_request() == 0);
    {
        // noted by its own thread, and not before the margin
        const Timer timer;
        const JobEnd end({.wall_seconds = 30.05}, 30);
        wait_until("the end of the time", [] { return stop_request() != 0; });
        CHECK(stop_request() == out_of_time);
        CHECK(timer.seconds() > 0.04);
    }
    CHECK(stop_request() == 0);
}

TEST_CASE("a clock that is set forward or back does not end a run") {
    std::atomic<double> epoch = 1.7e9, end = 1.7e9 + 600;
    std::atomic<int> asked = 0;
    JobEnd::Options options;
    options.wall_seconds = 500;
    options.start = 1000;
    options.now = [] { return 1100.0; };
    options.epoch = [&] { return double(epoch); };
    {
        const JobEnd own(options);
        CHECK(own.seconds_left() == 400);
        epoch = 1.8e9;
        CHECK(own.seconds_left() == 400);
        epoch = 1.7e9;
    }
    options.wall_seconds.reset();
    options.ask = [&]() -> std::optional<double> {
        if (asked++ > 0) return std::nullopt;
        return double(end);
    };
    JobEnd scheduled(options);
    scheduled.ask_again(patience(60));
    CHECK(scheduled.seconds_left() == 600);
    epoch = 1.8e9;
    CHECK(scheduled.seconds_left() == 600);
    CHECK(stop_request() == 0);
}

TEST_CASE("without a limit and without a job there is no end") {
    const JobEnd none{JobEnd::Options()};
    CHECK_FALSE(none.seconds_left());
}

TEST_CASE("squeue is asked for the end of a job") {
    const TemporaryFolder folder;
    const std::string path = std::getenv("PATH");
    const auto answers = [&](const char* script) {
        std::ofstream(folder / "squeue") << "#!/bin/sh\n" << script << '\n';
        std::filesystem::permissions(folder / "squeue", std::filesystem::perms::owner_all);
        setenv("PATH", (folder.path().string() + ":" + path).c_str(), 1);
        setenv("SLURM_JOB_ID", "123", 1);
        const auto end = slurm_job_end();
        setenv("PATH", path.c_str(), 1);
        unsetenv("SLURM_JOB_ID");
        return end;
    };
    CHECK(answers("[ \"$*\" = '--noheader --jobs=123 --format=%e' ] && [ $SLURM_TIME_FORMAT = %s ] && echo "
                  "1700000000") == 1700000000.0);
    setenv("SLURM_ARRAY_JOB_ID", "120", 1);
    setenv("SLURM_ARRAY_TASK_ID", "4", 1);
    CHECK(answers("[ \"$2\" = '--jobs=120_4' ] && echo 1700000001") == 1700000001.0);
    unsetenv("SLURM_ARRAY_JOB_ID");
    unsetenv("SLURM_ARRAY_TASK_ID");
    CHECK_FALSE(answers("echo N/A"));
    setenv("COEUS_JOB_END", "1700000005", 1);
    CHECK(answers("exit 1") == 1700000005.0);
    CHECK(answers("echo 1700000000") == 1700000000.0);
    unsetenv("COEUS_JOB_END");
    CHECK_FALSE(answers("exit 1"));
    CHECK_FALSE(answers("echo 2026-01-01T00:00:00"));
    setenv("SLURM_JOB_ID", "1; echo 5", 1);
    CHECK_FALSE(slurm_job_end());
    unsetenv("SLURM_JOB_ID");
    CHECK_FALSE(slurm_job_end());
}

TEST_CASE("job end: the job script is told through the file that it named") {
    tell_job_script(JobNote::complete);
    const TemporaryFolder folder;
    setenv("COEUS_DONE_FILE", (folder / "done").c_str(), 1);
    tell_job_script(JobNote::complete);
    CHECK(read_file(folder / "done") == "complete\n");
    tell_job_script(JobNote::lost_folder);
    CHECK(read_file(folder / "done") == "lost_folder\n");
    // other users may write to that folder
    std::filesystem::remove(folder / "done");
    std::filesystem::create_symlink(folder / "elsewhere", folder / "done");
    CHECK_THROWS_WITH(tell_job_script(JobNote::complete),
                      Catch::Contains("done: Too many levels of symbolic links"));
    CHECK_FALSE(std::filesystem::exists(folder / "elsewhere"));
    setenv("COEUS_DONE_FILE", (folder / "no/done").c_str(), 1);
    CHECK_THROWS_WITH(tell_job_script(JobNote::complete),
                      Catch::Contains("no/done: No such file or directory"));
    unsetenv("COEUS_DONE_FILE");
}
