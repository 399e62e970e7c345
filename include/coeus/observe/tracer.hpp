// SPDX-License-Identifier: Apache-2.0
// Tracer: when each action, kernel, collective and wait of a rank began and ended, on which thread, or on
// which queue of a GPU. Written in the trace event format that Perfetto and chrome://tracing read, and summed
// up as a page on how much of the communication the computation hid.
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

/// Actions, kernels and waits are seen from the thread that constructs the tracer, collectives from any. What
/// is a GPU's has the times at which its queue came there; a wait there is one of the queue, not of the host.
class Tracer final : public KernelObserver, public CommunicationObserver, public ActionObserver {
public:
    static constexpr size_t room = 1 << 18;
    /// Room for so many events; what comes later is counted, not kept. `stamps`: of the computation.
    explicit Tracer(int rank, size_t capacity = room, Timestamps stamps = {});

    /// Forgets all events. Not while a step is under way.
    void clear();

    void begin(const char* kernel, double flops, double bytes) override;
    void begin_exchange(Exchange exchange, double bytes) override;
    void end() override;
    int64_t begin(const std::string& communicator, const char* operation, int64_t bytes,
                  const std::source_location& where, const Queue* queue) override;
    void end(int64_t event) override;
    void begin_action(const Action& action) override;
    void end_action() override;

    /// One JSON object; times in microseconds. SystemError where the file cannot be written.
    void write(const std::filesystem::path& file) const;
    /// What was communicated, and how much of that the computation waited for.
    struct Communication {
        int64_t calls = 0, bytes = 0;
        double seconds = 0, exposed = 0;
    };
    /// By the names of the communicators.
    std::map<std::string, Communication> communication() const;
    /// A line for each communicator: calls, bytes, time in all, hidden behind computation, exposed,
    /// bandwidth.
    std::string overlap() const;

private:
    enum class Kind : uint8_t { kernel, wait, communication, action };
    struct Event {
        Kind kind;
        const char* name = nullptr;                 // of all but an action
        const std::string* communicator = nullptr;  // of a collective
        int64_t bytes = 0;
        double flops = 0;
        std::source_location where = {};
        Action action = {};
        const Queue* queue = nullptr;  // null: the host's
        int track = 0;
        Timestamp begin = {};
        std::optional<Timestamp> end = {};
    };
    // Of an event that has ended; seconds.
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
    // threads, or queues: of actions, which is neither's; of the computation; of others
    using Track = std::pair<std::thread::id, const Queue*>;
    std::vector<Track> tracks_;
    int64_t action_ = -1, running_ = -1, lost_ = 0;
};

}  // namespace coeus
