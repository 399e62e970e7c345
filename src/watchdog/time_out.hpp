// SPDX-License-Identifier: Apache-2.0
// TimeOut: how long an operation may take, and when the watchdog looks.
#pragma once

#include "coeus/base/flight_recorder.hpp"

#include <atomic>
#include <optional>

namespace coeus {

class TimeOut {
public:
    /// `option`: what reports call it; a literal.
    TimeOut(double seconds, const char* option) : seconds_(seconds), option_(option) {}

    /// From now on it is so long. By any thread.
    void set(double seconds, const char* option) {
        option_ = option;
        seconds_ = seconds;
    }
    double seconds() const { return seconds_; }
    const char* option() const { return option_; }

    /// From one look to the next: ten in a time-out, or one each second.
    double pause() const;
    /// At each look. A job that was suspended as a whole has not taken that time.
    void look(double now);
    /// When it was seen last that the job had been suspended; 0: never.
    double resumed() const { return resumed_; }
    /// How long it has taken, if that is too long. A QueueWatch sees to what was given to a GPU.
    std::optional<double> overdue(const Operation& operation, double now) const;

private:
    std::atomic<double> seconds_;
    std::atomic<const char*> option_;
    std::atomic<double> resumed_ = 0;
    double last_look_ = 0;
};

}  // namespace coeus
