// SPDX-License-Identifier: Apache-2.0
// Stream: work that runs at the same time as the computation, in the order of submission. On the CPU it is a
// thread, so that blocking collectives overlap with kernels; or it has no thread and does the work at once.
// On a GPU it has a queue as well. Work on that queue begins after everything that the computation had
// submitted when run() was called, and after join() the computation's queue waits for it.
#pragma once

#include "coeus/device/exec.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

namespace coeus {

class Stream;

/// Work on a stream that was not waited for yet. The destructor joins it at the latest.
class [[nodiscard]] Pending {
public:
    Pending() = default;
    ~Pending();
    Pending(Pending&& other) noexcept;
    Pending& operator=(Pending&& other) noexcept;

    /// Blocks until the work is done; on a GPU, until it was submitted, and makes the computation's queue
    /// wait for it. Rethrows what the work threw. Later calls return at once.
    void join();
    /// Gives up waiting. The stream does the work nevertheless.
    void forget() { stream_ = nullptr; }

private:
    friend class Stream;
    Pending(Stream* stream, int64_t number) : stream_(stream), number_(number) {}
    Stream* stream_ = nullptr;
    int64_t number_ = 0;
};

class Stream {
public:
    enum class Mode : uint8_t {
        eager,     ///< run() does the work before it returns
        threaded,  ///< a thread does the work, in order
        deferred   ///< join() does the work and all work before it: so late that a missing join shows
    };
    explicit Stream(Mode mode);
    /// A stream next to a computation, which must outlive it; it runs on the computation's device.
    Stream(Mode mode, const Exec& computation, Priority priority = Priority::normal);
    /// Waits for all work.
    ~Stream();
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    /// Submits work. Everything that it refers to must outlive it. Captures of up to two pointers do not
    /// allocate.
    Pending run(std::function<void()> work);
    /// The Exec for the kernels and collectives of its work: one thread, and on a GPU a queue.
    Exec& exec() { return exec_; }

private:
    friend class Pending;
    void join(int64_t number);
    void work_done(int64_t number);
    struct Worker;
    struct Waiting;
    Queue* beside_ = nullptr;  // the computation's queue; null: it is synchronous
    Exec exec_;
    static constexpr int64_t places_ = 64;  // most waiting work items; most points that are told apart
    std::array<std::atomic<int64_t>, places_> done_ = {};  // points of exec_'s queue after each work item
    int64_t given_ = 0;                                    // for eager mode with a queue
    std::unique_ptr<Worker> worker_;    // for threaded mode; must end before what its work refers to
    std::unique_ptr<Waiting> waiting_;  // for deferred mode
};

}  // namespace coeus
