// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/stop_signals.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/flight_recorder.hpp"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <string_view>

namespace coeus {

namespace {

constexpr std::array signals = {SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGHUP, SIGXCPU};
constexpr int64_t same_notice_ns = 1'000'000'000;

std::atomic<StopReason> noted = 0;
std::atomic<bool> time_is_over = false, asked_before = false, announces = false;
std::atomic<int64_t> noted_at = 0;
std::array<struct sigaction, signals.size()> earlier;
FlightRecorder::Notes* notes = nullptr;

int64_t nanoseconds() {
    timespec now = {};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return int64_t(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}
std::atomic<StopSignals::Clock> clock_now = nanoseconds;

std::string_view name_of(int signal) {
    switch (signal) {
        case SIGUSR1: return "SIGUSR1";
        case SIGUSR2: return "SIGUSR2";
        case SIGTERM: return "SIGTERM";
        case SIGINT: return "SIGINT";
        case SIGHUP: return "SIGHUP";
        case SIGXCPU: return "SIGXCPU";
        default: return "";
    }
}

// Written by one call, so that the lines of other ranks do not mix with it.
void say(std::string_view first, std::string_view then) {
    std::array<char, 160> line;
    size_t length = 0;
    for (const std::string_view part : {std::string_view("\ncoeus: "), first, then})
        length += part.copy(line.data() + length, line.size() - length);
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), length);
}

// The signal handler: it calls only functions that are safe there.
void note(int signal) {
    const int64_t now = clock_now.load()();
    int none = 0;
    if (noted.compare_exchange_strong(none, signal)) {
        noted_at = now;
        if (announces)
            say(name_of(signal),
                ": stopping after this step; a second signal ends the run at once, unsaved\n");
        return;
    }
    if (noted_at == 0 || now - noted_at < same_notice_ns) return;
    say("a second signal", ": ended at once; nothing was saved since the last checkpoint\n");
    notes->left = 1;  // so that other ranks do not take the end for a crash
    _exit(int(ExitCode::stopped));
}

}  // namespace

StopSignals::StopSignals() : StopSignals(nanoseconds) {}

StopSignals::StopSignals(Clock now) {
    clock_now = now;
    noted = 0;
    noted_at = 0;
    notes = &FlightRecorder::own().notes();
    const char* file = std::getenv("COEUS_STOP_FILE");
    asked_before = file && access(file, F_OK) == 0;
    struct sigaction action = {};
    action.sa_handler = note;
    action.sa_flags = SA_RESTART;  // so that no call of MPI or HDF5 is interrupted
    for (size_t i = 0; i < signals.size(); ++i) {
        sigaction(signals[i], nullptr, &earlier[i]);
        // nohup and shells start a process that shall outlive the terminal with these signals ignored
        const bool is_ignored = earlier[i].sa_handler == SIG_IGN;
        if (!is_ignored || (signals[i] != SIGINT && signals[i] != SIGHUP))
            sigaction(signals[i], &action, nullptr);
    }
}

StopSignals::~StopSignals() {
    for (size_t i = 0; i < signals.size(); ++i) sigaction(signals[i], &earlier[i], nullptr);
    noted = 0;
    asked_before = announces = false;
}

void StopSignals::announce() const {
    announces = true;
}

StopReason stop_request() {
    if (const StopReason signal = noted) return signal;
    return asked_before ? SIGUSR1 : time_is_over ? out_of_time : 0;
}

void note_out_of_time(bool is_over) {
    time_is_over = is_over;
}

std::string text_of(StopReason reason) {
    switch (reason) {
        case 0: return "";
        case out_of_time: return "the end of the job's time";
        default: break;
    }
    const std::string_view name = name_of(reason);
    return name.empty() ? fmt::format("signal {}", reason) : std::string(name);
}

void end_if_requested(const char* state) {
    if (const StopReason reason = stop_request())
        throw StoppedError(fmt::format("Stopped by {}: {}", text_of(reason), state));
}

}  // namespace coeus
