// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/stop_signals.hpp"

#include "coeus/base/error.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <string>

using namespace coeus;
using namespace coeus::test;

TEST_CASE("a signal is noted, only the first of several, and forgotten at the end") {
    CHECK(stop_request() == 0);
    end_if_requested("nothing came");
    {
        const StopSignals signals([] { return int64_t(1); });
        CHECK(stop_request() == 0);
        raise(SIGUSR1);
        raise(SIGTERM);  // of the same notice: a launcher and a scheduler both forwarded it
        CHECK(stop_request() == SIGUSR1);
        CHECK_THROWS_AS(end_if_requested("all is kept"), StoppedError);
        CHECK_THROWS_WITH(end_if_requested("all is kept"), "Stopped by SIGUSR1: all is kept");
    }
    CHECK(stop_request() == 0);
    CHECK(text_of(SIGTERM) == "SIGTERM");
    CHECK(text_of(SIGUSR2) == "SIGUSR2");
}

TEST_CASE("Ctrl-C and a closed terminal ask for a stop, unless the process was started to ignore them") {
    for (const int signal : {SIGINT, SIGHUP, SIGXCPU}) {
        const StopSignals signals;
        raise(signal);
        CHECK(stop_request() == signal);
    }
    for (const int signal : {SIGINT, SIGHUP}) {
        const auto before = std::signal(signal, SIG_IGN);
        {
            const StopSignals signals;
            raise(signal);
            CHECK(stop_request() == 0);
        }
        CHECK(std::signal(signal, before) == SIG_IGN);
    }
    CHECK(text_of(SIGINT) == "SIGINT");
    CHECK(text_of(SIGHUP) == "SIGHUP");
    CHECK(text_of(SIGXCPU) == "SIGXCPU");
}

TEST_CASE("a signal is answered at once by one line that names it, and only if it is asked for") {
    for (const int announces : {2, 1, 0}) {
        int ends[2];
        REQUIRE(pipe(ends) == 0);
        {
            const StopSignals signals([] { return int64_t(1); });
            if (announces > 0) signals.announce(ends[1]);
            if (announces == 1) end_announcements();  // the program itself says that it stops
            raise(SIGINT);
            raise(SIGTERM);  // of the same notice
        }
        close(ends[1]);
        std::string said(500, '-');
        said.resize(size_t(read(ends[0], said.data(), said.size())));
        close(ends[0]);
        CHECK(said == (announces == 2
                           ? "\ncoeus: SIGINT: stopping after this step; a second signal ends the run at "
                             "once, unsaved\n"
                           : ""));
    }
}

TEST_CASE("the end of the time asks for a stop, until a signal does") {
    const StopSignals signals;
    note_out_of_time(true);
    CHECK(stop_request() == out_of_time);
    CHECK_THROWS_WITH(end_if_requested("all is kept"), "Stopped by the end of the job's time: all is kept");
    raise(SIGUSR2);  // the first signal: it does not end the process
    CHECK(stop_request() == SIGUSR2);
    note_out_of_time(false);
    CHECK(stop_request() == SIGUSR2);
}

TEST_CASE("a request from before the start counts, and the next signal is still the first") {
    const TemporaryFolder folder;
    setenv("COEUS_STOP_FILE", (folder / "told").c_str(), 1);
    CHECK((StopSignals(), stop_request()) == 0);
    write_file(folder / "told", "");
    {
        const StopSignals signals;
        CHECK(stop_request() == SIGUSR1);
        raise(SIGTERM);
        CHECK(stop_request() == SIGTERM);
    }
    unsetenv("COEUS_STOP_FILE");
    CHECK(stop_request() == 0);
}

TEST_CASE("a second signal ends the process immediately with exit code 75") {
    static std::atomic<int64_t> now = 1'000'000'000;  // the clock of the signals
    int pipe_ends[2];
    REQUIRE(pipe(pipe_ends) == 0);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        const StopSignals signals([] { return now.load(); });
        close(STDERR_FILENO);
        raise(SIGUSR1);
        now += 999'999'999;
        raise(SIGUSR1);  // still of the same notice
        if (write(pipe_ends[1], "!", 1) != 1) _exit(1);
        ++now;
        raise(SIGUSR1);
        _exit(1);
    }
    close(pipe_ends[1]);
    char still_there = 0;
    CHECK(read(pipe_ends[0], &still_there, 1) == 1);
    close(pipe_ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 75);
}
