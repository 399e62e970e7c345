// SPDX-License-Identifier: Apache-2.0
// QueueWatch: a thread that sees operations between ranks that do not end, and others' failures, while the
// program itself may be waiting for good. Operations are written down by communicator, in a ring of the last
// ones.
#pragma once

#include "coeus/base/clock.hpp"
#include "coeus/base/flight_recorder.hpp"
#include "coeus/device/device.hpp"

#include <array>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace coeus {

class QueueWatch {
public:
    class Line;

    /// What it says, and does, of an operation that took too long or a communicator that failed.
    struct Settings {
        std::string who;  ///< "rank 3 on host a, GPU 0000:1b:00.0"
        /// Gets the message, once, and is expected to end the process: what waits for other ranks, in the
        /// driver, in a library or in MPI, cannot be relied on to return.
        std::function<void(const std::string& message)> fail;
        std::function<double()> clock = steady_seconds;
    };
    explicit QueueWatch(Settings settings) : settings_(std::move(settings)) {}
    ~QueueWatch();
    QueueWatch(const QueueWatch&) = delete;
    QueueWatch& operator=(const QueueWatch&) = delete;

    /// From now on an operation may take so long. `option`: what the message calls that.
    void allow(double seconds, const std::string& option);
    /// Starts the thread, which looks every second, or ten times in what is allowed.
    void start();
    /// What the thread does: fails where an operation is overdue.
    void look();

private:
    void join(Line& line);
    void leave(Line& line);
    void loop();

    Settings settings_;
    std::mutex mutex_;  // of all that follows, and of the lines
    std::condition_variable changed_;
    std::vector<Line*> lines_;
    double allowed_ = 0;
    std::string option_;
    bool ending_ = false, failed_ = false;
    std::thread thread_;
};

/// The operations of one communicator, which end in the order in which they were given. One thread writes
/// them down.
class QueueWatch::Line {
public:
    /// `failure`: what is wrong with the communicator as such, asked at each look; "": nothing. Operations on
    /// a device's queues are seen by its events, which are made here; `device` null: they end when the host
    /// says so. `recorded`: of the flight recorder, where operations are entered too, as this `kind`. The
    /// watch outlives it.
    Line(QueueWatch& watch, std::string communicator, std::function<std::string()> failure,
         const Device* device, FlightRecorder::Line recorded = {},
         OperationKind kind = OperationKind::queued);
    ~Line();
    Line(const Line&) = delete;
    Line& operator=(const Line&) = delete;

    /// Before what is given to that queue, or done by the host (null). `operation` is a literal. `seconds`:
    /// of work of its own, beside which it may take what is allowed. What is recorded as part of a graph is
    /// not written down: its events could not be asked.
    void begin(const char* operation, int64_t bytes, const Queue* queue, double seconds = 0);
    /// Behind it.
    void end(const Queue* queue);

private:
    friend class QueueWatch;
    struct Operation {
        const char* name = nullptr;
        int64_t bytes = 0, number = 0;
        std::unique_ptr<Event> begun, ended;  // null: by the host
        bool host_ended = false;
        double since = -1;  // when it was first seen to have begun
        double seconds = 0;
        int entry = -1;  // of the flight recorder, until it has ended
    };
    static constexpr size_t remembered_ = 64;
    // Moves on to the first that has not ended; null: none.
    Operation* first_under_way();
    // The time of those under way counts from now on.
    void begin_again();
    Operation& at(int64_t number) { return ring_[size_t(number) % remembered_]; }

    QueueWatch& watch_;
    std::string communicator_;
    std::function<std::string()> failure_;
    FlightRecorder::Line recorded_;
    OperationKind kind_;
    std::array<Operation, remembered_> ring_;
    int64_t first_ = 0, given_ = 0;  // numbers under way: [first_, given_)
};

}  // namespace coeus
