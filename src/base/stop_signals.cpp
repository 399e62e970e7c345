// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/stop_signals.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/flight_recorder.hpp"
#include "coeus/base/launcher.hpp"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <initializer_list>
#include <string_view>

namespace coeus {

namespace {

constexpr std::array signals = {SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGHUP, SIGXCPU};
constexpr int64_t same_notice_ns = 1'000'000'000;

std::atomic<StopReason> noted = 0;
std::atomic<bool> time_is_over = false, asked_before = false;
std::atomic<int> announced_to = -1;  // a descriptor; -1: signals are not announced
std::atomic<int64_t> noted_at = 0;
std::array<struct sigaction, signals.size()> earlier;
FlightRecorder::Notes* notes = nullptr;
// " from mpirun"; empty if no launcher of MPI started this process. Set before the handler is installed.
std::array<char, 64> from_launcher = {};

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
void say(int descriptor, std::initializer_list<std::string_view> parts) {
    std::array<char, 240> line;
    size_t length = 0;
    for (const std::string_view part : parts) length += part.copy(line.data() + length, line.size() - length);
    [[maybe_unused]] const ssize_t written = write(descriptor, line.data(), length);
}

// The signal handler: it calls only functions that are safe there.
void note(int signal, siginfo_t* sender, void*) {
    const int64_t now = clock_now.load()();
    int none = 0;
    if (noted.compare_exchange_strong(none, signal)) {
        noted_at = now;
        const bool by_launcher =
            from_launcher[0] != '\0' && sender->si_code == SI_USER && sender->si_pid == getppid();
        if (const int descriptor = announced_to; descriptor >= 0)
            say(descriptor, {"\ncoeus: ", name_of(signal), by_launcher ? from_launcher.data() : "",
                             by_launcher && signal == SIGTERM ? ", which sends it after Ctrl-C too" : "",
                             ": stopping after this step; a second signal ends the run at once, unsaved\n"});
        return;
    }
    if (noted_at == 0 || now - noted_at < same_notice_ns) return;
    say(STDERR_FILENO,
        {"\ncoeus: a second signal: ended at once; nothing was saved since the last checkpoint\n"});
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
    if (const std::string launcher = launcher_name(); !launcher.empty())
        *fmt::format_to_n(from_launcher.data(), from_launcher.size() - 1, " from {}", launcher).out = '\0';
    struct sigaction action = {};
    action.sa_sigaction = note;
    action.sa_flags = SA_SIGINFO | SA_RESTART;  // so that no call of MPI or HDF5 is interrupted
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
    asked_before = false;
    announced_to = -1;
}

void StopSignals::announce(int descriptor) const {
    announced_to = descriptor;
}

void end_announcements() {
    announced_to = -1;
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
