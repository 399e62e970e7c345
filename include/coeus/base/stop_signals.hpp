// SPDX-License-Identifier: Apache-2.0
// Requests that this process stop in an orderly way: a signal (SIGUSR1, SIGUSR2, SIGTERM; SIGINT: Ctrl-C;
// SIGHUP: the terminal was closed; SIGXCPU: the processor time is used up), or the end of the job's time. The
// program polls for them at points where it can stop safely.
#pragma once

#include <cstdint>
#include <string>

namespace coeus {

/// Handles these signals while it lives. The first one is noted and the program continues. Another one ends
/// the process at once with exit code 75, unless it arrives within a second: a launcher and a scheduler may
/// both forward the same signal. SIGINT and SIGHUP stay ignored if the process was started that way (nohup, a
/// background job of a shell). If the file named by COEUS_STOP_FILE exists at construction, that is a request
/// too: a job script writes it when a signal arrives before there is a process to forward it to. Only one
/// object may exist at a time.
class StopSignals {
public:
    /// Nanoseconds of a monotonic clock; called in signal handlers.
    using Clock = int64_t (*)();
    StopSignals();
    explicit StopSignals(Clock now);
    ~StopSignals();
    StopSignals(const StopSignals&) = delete;
    StopSignals& operator=(const StopSignals&) = delete;
    /// From now on the first signal is answered at once by a line that names it, written to `descriptor`:
    /// where the log's lines go, so that a launcher cannot change their order. If MPI's launcher sent the
    /// signal, the line says so, since mpirun sends SIGTERM after Ctrl-C. Called on one rank.
    void announce(int descriptor) const;
};

/// No signal is announced any more: the program itself says that it stops. Another rank may have had the
/// signal first.
void end_announcements();

/// The reason to stop: 0 (none), a signal's number, or out_of_time.
using StopReason = int;
constexpr StopReason out_of_time = 1000;  // larger than any signal's number

/// The reason to stop, if any. A signal takes precedence over the end of the time.
StopReason stop_request();
/// Notes that the job's time is over, or (false) that it is not. May be called by any thread.
void note_out_of_time(bool is_over);
/// "SIGTERM", "the end of the job's time"; empty for 0.
std::string text_of(StopReason reason);
/// Throws StoppedError if a stop was requested. `state` says what the next start will find: "what was
/// tokenized is kept".
void end_if_requested(const char* state);

}  // namespace coeus
