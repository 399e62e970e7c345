// SPDX-License-Identifier: Apache-2.0
// Signals: what a watchdog hears by signals, and how it asks a thread where it is.
//   SIGQUIT                                     a user asks for the report
//   SIGURG (ignored by who does not know it)    wakes the watchdog; the thread that is asked says where it is
//   SIGSEGV SIGBUS SIGFPE SIGILL SIGABRT        the thread crashed: it waits until the watchdog ends all
#pragma once

#include "coeus/base/call_stack.hpp"

#include <csignal>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coeus {

/// One at a time in a process.
class Signals {
public:
    /// Signals are caught from now on, until the end. `patience`: seconds that a crashed thread waits.
    explicit Signals(double patience);
    ~Signals();
    Signals(const Signals&) = delete;
    Signals& operator=(const Signals&) = delete;

    /// From the watchdog's own thread, whose crash nobody else can report.
    void this_is_the_watchdog();
    /// Sleeps until a signal or wake(), or until one of the descriptors (below 0: none) has something, or so
    /// long.
    void wait(double seconds, int descriptor);
    void wake();
    /// Whether SIGQUIT came since the last call.
    bool asked_by_hand();

    struct Crash {
        int64_t thread;
        std::string text;  ///< "segmentation fault (signal 11) at 0x0"
        CallStack stack;
    };
    std::optional<Crash> crash() const;
    /// It is reported: the crashed thread may end the process.
    void end_crashed() const;

    /// Where a thread of this process is; none if it does not say so within so many seconds, or
    /// `while_ready` if it is ready to run all that time and only waits for a core. A thread that crashed
    /// says where.
    std::optional<CallStack> stack_of(int64_t thread, double seconds, double while_ready = 0);
    /// Lets the watchdog of another process of this host look.
    static void wake_process(int64_t pid);

private:
    std::vector<std::pair<int, struct sigaction>> before_;
    std::vector<char> alternate_stack_;
};

}  // namespace coeus
