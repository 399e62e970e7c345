// SPDX-License-Identifier: Apache-2.0
// Tracer: when each kernel, collective and wait of a rank began and ended, on which thread. Written in the
// trace event format that Perfetto and chrome://tracing read, and summed up as a page on how much of the
// communication the computation hid.
#pragma once

#include "coeus/base/clock.hpp"
#include "coeus/comm/communicator.hpp"
#include "coeus/device/exec.hpp"

#include <filesystem>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace coeus {

/// Kernels and waits are seen from the thread that constructs the tracer, collectives from any.
class Tracer final : public KernelObserver, public CommunicationObserver {
public:
    /// Room for so many events; what comes later is counted, not kept.
    explicit Tracer(int rank, size_t capacity = 1 << 18, double (*now)() = steady_seconds);

    /// Forgets all events.
    void clear();
    /// Hands kernels on to another observer; null: to nobody.
    void hand_on(KernelObserver* next) { next_ = next; }

    void begin(const char* kernel, double flops, double bytes) override;
    void begin_exchange(const char* name, double bytes) override;
    void operands(std::span<const Tensor> tensors) override;
    void end() override;
    int64_t begin(const std::string& communicator, const char* operation, int64_t bytes,
                  const std::source_location& where) override;
    void end(int64_t event) override;

    /// One JSON object; times in microseconds. SystemError where the file cannot be written.
    void write(const std::filesystem::path& file) const;
    /// A line for each communicator: calls, bytes, time in all, hidden behind computation, exposed,
    /// bandwidth.
    std::string overlap() const;

private:
    enum class Kind : uint8_t { kernel, wait, communication };
    struct Event {
        Kind kind;
        const char* name;
        const std::string* communicator;  // of a collective; else null
        int64_t bytes;
        double flops, begin, end;
        int thread;
        std::source_location where;
    };
    int64_t add(const Event& event);
    int thread_number();
    std::string name_of_thread(int number) const;

    int rank_;
    double (*now_)();
    mutable std::mutex mutex_;
    std::vector<Event> events_;
    std::vector<std::thread::id> threads_;  // by number; 0 is the thread of the kernels
    int64_t running_ = -1, lost_ = 0;
    KernelObserver* next_ = nullptr;
};

}  // namespace coeus
