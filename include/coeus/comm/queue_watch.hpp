// SPDX-License-Identifier: Apache-2.0
// QueueWatch: a thread that detects operations between ranks that do not end, and communicators that failed,
// even if the program itself waits forever. Operations are recorded for each communicator, in a ring of the
// last 64.
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

    /// What to report, and to whom, if an operation takes too long or a communicator failed.
    struct Settings {
        std::string who;  ///< "rank 3 on host a, GPU 0000:1b:00.0"
        /// Receives the message, once, and is expected to end the process: calls that wait for other ranks
        /// inside the driver, a library or MPI cannot be relied on to return.
        std::function<void(const std::string& message)> fail;
        std::function<double()> clock = steady_seconds;
    };
    explicit QueueWatch(Settings settings) : settings_(std::move(settings)) {}
    ~QueueWatch();
    QueueWatch(const QueueWatch&) = delete;
    QueueWatch& operator=(const QueueWatch&) = delete;

    /// Sets how long an operation may take. `option` is the name of that limit in messages.
    void allow(double seconds, const std::string& option);
    /// Starts the thread. It looks every second, or ten times within the allowed time if that is shorter.
    void start();
    /// One look of the thread: fails if an operation is overdue.
    void look();

private:
    void join(Line& line);
    void leave(Line& line);
    void loop();

    Settings settings_;
    std::mutex mutex_;  // protects all members below, and the lines
    std::condition_variable changed_;
    std::vector<Line*> lines_;
    double allowed_ = 0;
    std::string option_;
    bool ending_ = false, failed_ = false;
    std::thread thread_;
};

/// The operations of one communicator, which end in the order in which they were submitted. One thread
/// records them.
class QueueWatch::Line {
public:
    /// `failure` returns what is wrong with the communicator itself, or ""; it is called at each look.
    /// Operations on a device's queues are tracked by events of that device, which are made here; if `device`
    /// is null, they end when the host says so. `recorded` is the line of the flight recorder that they are
    /// recorded under as well, as this `kind`. The watch must outlive the line.
    Line(QueueWatch& watch, std::string communicator, std::function<std::string()> failure,
         const Device* device, FlightRecorder::Line recorded = {},
         OperationKind kind = OperationKind::queued);
    ~Line();
    Line(const Line&) = delete;
    Line& operator=(const Line&) = delete;

    /// Call before an operation is submitted to that queue, or done by the host (null). `operation` must be a
    /// string literal. `seconds` is the expected time of its own work, which is added to the allowed time.
    /// Operations that are captured into a graph are not recorded, since their events cannot be queried.
    void begin(const char* operation, int64_t bytes, const Queue* queue, double seconds = 0);
    /// Call after the operation was submitted or done.
    void end(const Queue* queue);

private:
    friend class QueueWatch;
    struct Operation {
        const char* name = nullptr;
        int64_t bytes = 0, number = 0;
        std::unique_ptr<Event> begun, ended;  // null: the host does the operation
        bool host_ended = false;
        double since = -1;  // when it was first seen to have begun; -1: not yet
        double seconds = 0;
        int entry = -1;  // in the flight recorder, until it has ended; -1: none
    };
    static constexpr size_t remembered_ = 64;
    // Advances to the first operation that has not ended and returns it; null: none.
    Operation* first_under_way();
    // Restarts the time of the operations in progress.
    void begin_again();
    Operation& at(int64_t number) { return ring_[size_t(number) % remembered_]; }

    QueueWatch& watch_;
    std::string communicator_;
    std::function<std::string()> failure_;
    FlightRecorder::Line recorded_;
    OperationKind kind_;
    std::array<Operation, remembered_> ring_;
    int64_t first_ = 0, given_ = 0;  // numbers in progress: [first_, given_)
};

}  // namespace coeus
