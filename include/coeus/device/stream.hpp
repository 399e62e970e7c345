// SPDX-License-Identifier: Apache-2.0
// Stream: work that runs beside the computation, in the order in which it was given. On the CPU it is a
// thread of its own, so that blocking collectives overlap with kernels; or nothing, and the work runs at
// once.
#pragma once

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

    /// Waits until the work is done; rethrows what it threw. Later calls return at once.
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
    /// Waits for all work.
    ~Stream();
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    /// What the work refers to must outlive it. Captures of up to two pointers allocate nothing.
    Pending run(std::function<void()> work);

private:
    friend class Pending;
    void join(int64_t number);
    struct Worker;
    struct Queue;
    std::unique_ptr<Worker> worker_;  // threaded
    std::unique_ptr<Queue> queue_;    // deferred
};

}  // namespace coeus
