// SPDX-License-Identifier: Apache-2.0
// Timestamps: when the work of queues came to places in it, told later, so that nothing waits for a GPU
// meanwhile.
#pragma once

#include "coeus/base/clock.hpp"
#include "coeus/device/exec.hpp"

#include <memory>
#include <vector>

namespace coeus {

/// A time of the host, or a place in a queue's work.
struct Timestamp {
    double seconds = 0;  ///< of the host
    int64_t place = -1;  ///< of a queue; -1: of none
};

/// Used by one thread at a time, any that has entered the queue's device.
class Timestamps {
public:
    /// Of the host alone. `now`: seconds of a clock that does not go back; tests bring their own.
    Timestamps(double (*now)() = steady_seconds)
        : now_(now) {}  // NOLINT: a clock is all the host's stamps are
    /// Of a computation, which outlives them, and of other queues of its device.
    explicit Timestamps(const Exec& computation);

    /// Whose places are stamped; null: the computation is synchronous, and the host's clock tells.
    const Queue* computation() const { return computation_; }
    /// Forgets all; waits for the computation, at whose end the clocks of device and host are compared.
    void restart();
    /// Behind all that the queue was given; without one now.
    Timestamp take(const Queue* queue);

    /// By the host's clock, on a GPU to the precision of float: a microsecond in the first 16 s after
    /// restart(). It waits for the place if need be.
    double seconds(const Timestamp& stamp) const;
    /// Both of the host, or both of queues; the latter does not lose precision with time.
    double between(const Timestamp& first, const Timestamp& last) const;

private:
    const TimedEvent& event_of(const Timestamp& stamp) const { return *events_[size_t(stamp.place)]; }

    double (*now_)() = steady_seconds;
    const Device* device_ = nullptr;
    Queue* computation_ = nullptr;
    std::vector<std::unique_ptr<TimedEvent>> events_;  // the first: of restart()
    size_t taken_ = 0;
    double restarted_ = 0;  // by the host's clock
};

}  // namespace coeus
