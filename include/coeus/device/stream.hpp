// SPDX-License-Identifier: Apache-2.0
// Stream: work that runs beside the computation, in the order in which it was given. On the CPU it is a
// thread of its own, so that blocking collectives overlap with kernels; or nothing, and the work runs at
// once. On a GPU it has a queue as well: what its work gives to that begins behind what the computation had
// given to its own queue when run() was called, and after join() the computation's queue continues after it.
#pragma once

#include "coeus/device/exec.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

namespace coeus {

class Stream;

/// Work on a stream that was not waited for yet; joins itself at the latest in its destructor.
class [[nodiscard]] Pending {
public:
    Pending() = default;
    ~Pending();
    Pending(Pending&& other) noexcept;
    Pending& operator=(Pending&& other) noexcept;

    /// Waits until the work is done, a GPU's part of it in its queue; rethrows what it threw. Later calls
    /// return at once.
    void join();
    /// Nobody waits any more; the stream does the work all the same.
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
        eager,     ///< run() returns when the work is done
        threaded,  ///< a thread does the work, in order
        deferred   ///< join() does the work, and what was given before it: so late that a missing join shows
    };
    explicit Stream(Mode mode);
    /// Beside a computation, which outlives it: on the same device, if that is known.
    Stream(Mode mode, const Exec& computation);
    /// Waits for all work.
    ~Stream();
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    /// What the work refers to must outlive it. Captures of up to two pointers allocate nothing.
    Pending run(std::function<void()> work);
    /// For the kernels and collectives of its work: one thread, and on a GPU the queue.
    Exec& exec() { return exec_; }

private:
    friend class Pending;
    void join(int64_t number);
    void work_done(int64_t number);
    struct Worker;
    struct Waiting;
    Queue* beside_ = nullptr;  // the computation's; null: that is synchronous
    Exec exec_;
    static constexpr int64_t places_ = 64;  // work that a thread has not begun, and points told apart
    std::array<std::atomic<int64_t>, places_> done_ = {};  // points of exec_'s queue behind the work
    int64_t given_ = 0;                                    // eager, with a queue
    std::unique_ptr<Worker> worker_;                       // threaded; ends before what its work refers to
    std::unique_ptr<Waiting> waiting_;                     // deferred
};

}  // namespace coeus
