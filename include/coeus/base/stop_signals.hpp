// SPDX-License-Identifier: Apache-2.0
// Requests that this process ends in order: a signal (SIGUSR1, SIGUSR2, SIGTERM; SIGINT: Ctrl-C; SIGHUP: the
// terminal has closed; SIGXCPU: the processor time is used up), or the end of its time. Safe points ask.
#pragma once

#include <cstdint>
#include <string>

namespace coeus {

/// While it lives the first such signal is noted and the program continues. Another one ends the process at
/// once with exit code 75, unless it comes within a second: a launcher and a scheduler may both pass on the
/// same. SIGINT and SIGHUP stay ignored if the process began so (nohup, a shell's background job). Where the
/// file that COEUS_STOP_FILE names is there when it begins, that is a request too: a job script writes it
/// when a signal came before there was a process to pass it on to. One at a time.
class StopSignals {
public:
    /// Nanoseconds, of what never goes back; called by signals' handlers.
    using Clock = int64_t (*)();
    StopSignals();
    explicit StopSignals(Clock now);
    ~StopSignals();
    StopSignals(const StopSignals&) = delete;
    StopSignals& operator=(const StopSignals&) = delete;
    /// From now on a line on stderr answers the first signal at once. One rank calls it.
    void announce() const;
};

/// What a process is asked to stop by: 0: by nothing; a signal; or out_of_time.
using StopReason = int;
constexpr StopReason out_of_time = 1000;  // larger than any signal's number

/// A signal before the time.
StopReason stop_request();
/// By another thread. False: forgotten.
void note_out_of_time(bool is_over);
/// "SIGTERM", "the end of the job's time"; "" of 0.
std::string text_of(StopReason reason);
/// Throws StoppedError where a stop was asked for; `state`: what the next start finds, "what was tokenized is
/// kept".
void end_if_requested(const char* state);

}  // namespace coeus
