// SPDX-License-Identifier: Apache-2.0
// Clocks, timers and durations as text. All times are wall time in seconds.
#pragma once

#include <chrono>
#include <string>

namespace coeus {

/// Seconds of a monotonic clock, which never goes back.
inline double steady_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Suspends the calling thread for this many seconds.
void sleep_seconds(double seconds);

/// Seconds of the system's clock since 1970 began (UTC). This clock may be set back.
inline double seconds_since_1970() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Seconds since construction or the last restart().
class Timer {
public:
    double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
    void restart() { start_ = Clock::now(); }

private:
    using Clock = std::chrono::steady_clock;
    Clock::time_point start_ = Clock::now();
};

/// "41 s", "3 m 07 s", "2 h 05 m", "4 d 03 h": for the time left and for summaries.
std::string duration_text(double seconds);

}  // namespace coeus
