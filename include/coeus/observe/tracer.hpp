// SPDX-License-Identifier: Apache-2.0
// Tracer: records when each pipeline action, kernel, collective and wait of a rank began and ended, and on
// which thread or which queue of a GPU. It writes the trace event format that Perfetto and chrome://tracing
// read, and a table that shows how much of the communication was hidden by computation.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/device/timestamps.hpp"
#include "coeus/pipeline/executor.hpp"

#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace coeus {

/// Actions, kernels and waits are recorded from the thread that constructs the tracer, collectives from any
/// thread. Events of a GPU have the times at which its queue reached them; waits are then waits of the queue,
/// not of the host.
class Tracer final : public KernelObserver, public CommunicationObserver, public ActionObserver {
public:
    static constexpr size_t room = 1 << 18;
    /// Has room for `capacity` events; later ones are only counted. `stamps`: clock of the computation.
    explicit Tracer(int rank, size_t capacity = room, Timestamps stamps = {});

    /// Deletes all events. Do not call it during a step.
    void clear();

    void begin(const char* kernel, double flops, double bytes) override;
    void begin_exchange(Exchange exchange, double bytes) override;
    void end() override;
    int64_t begin(const std::string& communicator, const char* operation, int64_t bytes,
                  const std::source_location& where, const Queue* queue) override;
    void end(int64_t event) override;
    void begin_action(const Action& action) override;
    void end_action() override;

    /// Writes one JSON object; times in microseconds. SystemError if the file cannot be written.
    void write(const std::filesystem::path& file) const;
    /// Communication of one communicator. `exposed`: the part of `seconds` for which the computation waited.
    struct Communication {
        int64_t calls = 0, bytes = 0;
        double seconds = 0, exposed = 0;
    };
    /// The key is the name of the communicator.
    std::map<std::string, Communication> communication() const;
    /// A table with one line per communicator: calls, bytes, total time, time hidden by computation, exposed
    /// time, bandwidth.
    std::string overlap() const;

private:
    enum class Kind : uint8_t { kernel, wait, communication, action };
    struct Event {
        Kind kind;
        const char* name = nullptr;                 // null for an action
        const std::string* communicator = nullptr;  // only for a collective
        int64_t bytes = 0;
        double flops = 0;
        std::source_location where = {};
        Action action = {};
        const Queue* queue = nullptr;  // null: on the host
        int track = 0;
        Timestamp begin = {};
        std::optional<Timestamp> end = {};
    };
    // Begin and end of an event that has ended, in seconds.
    struct Span {
        double begin, end;
    };
    Span span(const Event& event) const;
    int64_t begin(Event event);
    int track_of(const Queue* queue);
    std::string name_of_track(int number) const;

    int rank_;
    mutable std::mutex mutex_;
    Timestamps stamps_;
    std::vector<Event> events_;
    // A thread or a queue. Track 0 is for actions, track 1 for the computation, further ones for other
    // threads and queues.
    using Track = std::pair<std::thread::id, const Queue*>;
    std::vector<Track> tracks_;
    int64_t action_ = -1, running_ = -1, lost_ = 0;
};

}  // namespace coeus
