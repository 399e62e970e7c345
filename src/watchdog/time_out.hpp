// SPDX-License-Identifier: Apache-2.0
// TimeOut: how long an operation may take, and how often the watchdog checks.
#pragma once

#include "coeus/base/flight_recorder.hpp"

#include <atomic>
#include <optional>

namespace coeus {

class TimeOut {
public:
    /// `option`: its name in reports; a literal.
    TimeOut(double seconds, const char* option) : seconds_(seconds), option_(option) {}

    /// Changes the time-out. Any thread may call it.
    void set(double seconds, const char* option) {
        option_ = option;
        seconds_ = seconds;
    }
    double seconds() const { return seconds_; }
    const char* option() const { return option_; }

    /// Seconds from one check to the next: a tenth of the time-out, at most 1.
    double pause() const;
    /// Call it at each check. It notices if the whole job was suspended; that time does not count for
    /// operations.
    void look(double now);
    /// When the end of a suspension of the job was last noticed; 0: never.
    double resumed() const { return resumed_; }
    /// The time until now does not count for operations: a rank of this host waits for a file system.
    void excuse(double now) { resumed_ = now; }
    /// Seconds that the operation has taken, if these are too many; else none. Operations of a GPU's queue
    /// are watched by a QueueWatch instead.
    std::optional<double> overdue(const Operation& operation, double now) const;

private:
    std::atomic<double> seconds_;
    std::atomic<const char*> option_;
    std::atomic<double> resumed_ = 0;
    double last_look_ = 0;
};

}  // namespace coeus
