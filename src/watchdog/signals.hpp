// SPDX-License-Identifier: Apache-2.0
// Signals: the signals that a watchdog handles, and how it gets the call stack of a thread.
//   SIGQUIT                                 a user asks for the report
//   SIGURG (ignored by default)             wakes the watchdog; a thread that is asked records its call stack
//   SIGSEGV SIGBUS SIGFPE SIGILL SIGABRT    a thread crashed: it waits until the watchdog ends all ranks
#pragma once

#include "coeus/base/call_stack.hpp"

#include <csignal>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coeus {

/// A process has at most one at a time.
class Signals {
public:
    /// Handles the signals until it is destroyed. `patience`: seconds that a crashed thread waits for the
    /// report.
    explicit Signals(double patience);
    ~Signals();
    Signals(const Signals&) = delete;
    Signals& operator=(const Signals&) = delete;

    /// The watchdog's own thread calls it: nobody else can report a crash of that thread.
    void this_is_the_watchdog();
    /// Sleeps until a signal arrives, wake() is called or `descriptor` (below 0: none) is readable, at most
    /// `seconds`.
    void wait(double seconds, int descriptor);
    void wake();
    /// True if SIGQUIT arrived since the last call.
    bool asked_by_hand();

    struct Crash {
        int64_t thread;
        std::string text;  ///< "segmentation fault (signal 11) at 0x0"
        CallStack stack;
    };
    /// The crash of a thread of this process; none if there was none.
    std::optional<Crash> crash() const;
    /// Call it after the report: the crashed thread may end the process.
    void end_crashed() const;

    /// The call stack of a thread of this process; for a thread that crashed, the stack of the crash. None if
    /// the thread does not answer within `seconds`, or within `while_ready` seconds if it is ready to run all
    /// that time and only waits for a core.
    std::optional<CallStack> stack_of(int64_t thread, double seconds, double while_ready = 0);
    /// Wakes the watchdog of another process of this host.
    static void wake_process(int64_t pid);

private:
    std::vector<std::pair<int, struct sigaction>> before_;
    std::vector<char> alternate_stack_;
};

}  // namespace coeus
