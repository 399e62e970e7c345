// SPDX-License-Identifier: Apache-2.0
// Timestamps: when a queue reached given points of its work. They are read later, so that the host never
// waits for the GPU.
#pragma once

#include "coeus/base/clock.hpp"
#include "coeus/device/exec.hpp"

#include <memory>
#include <vector>

namespace coeus {

/// A time of the host, or a point in a queue's work.
struct Timestamp {
    double seconds = 0;  ///< host time, if there is no place
    int64_t place = -1;  ///< number of the event in a queue; -1: none
};

/// Takes and reads timestamps. Used by one thread at a time, which must have entered the queue's device.
class Timestamps {
public:
    /// Timestamps of only the host. `now` returns the seconds of a monotonic clock; tests pass their own.
    Timestamps(double (*now)() = steady_seconds)
        : now_(now) {}  // NOLINT: a clock is all that the host's timestamps need
    /// Timestamps of a computation, which must outlive them, and of other queues of its device.
    explicit Timestamps(const Exec& computation);

    /// The computation's queue; null: it is synchronous and uses the host's clock.
    const Queue* computation() const { return computation_; }
    /// Discards all timestamps. Waits for the computation and then synchronises the clocks of device and
    /// host.
    void restart();
    /// Takes a timestamp after all work submitted to the queue; null: the host's time now.
    Timestamp take(const Queue* queue);

    /// The time of a timestamp by the host's clock; blocks until the queue has reached it. On a GPU it has
    /// the precision of a float: a microsecond in the first 16 s after restart().
    double seconds(const Timestamp& stamp) const;
    /// Seconds between two timestamps, both of the host or both of queues. Between timestamps of queues, no
    /// precision is lost over time.
    double between(const Timestamp& first, const Timestamp& last) const;

private:
    const TimedEvent& event_of(const Timestamp& stamp) const { return *events_[size_t(stamp.place)]; }

    double (*now_)() = steady_seconds;
    const Device* device_ = nullptr;
    Queue* computation_ = nullptr;
    std::vector<std::unique_ptr<TimedEvent>> events_;  // the first one is that of restart()
    size_t taken_ = 0;
    double restarted_ = 0;  // by the host's clock
};

}  // namespace coeus
