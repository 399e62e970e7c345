// SPDX-License-Identifier: Apache-2.0
#include "coeus/device/stream.hpp"

#include "coeus/base/error.hpp"

#include <array>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

namespace coeus {

// A ring of work that waits; number n is at n modulo its size.
struct Stream::Worker {
    static constexpr int64_t places = 64;
    std::array<std::function<void()>, places> ring;
    std::mutex mutex;
    std::condition_variable changed;
    int64_t given = 0, done = 0;
    bool ending = false;
    std::exception_ptr failure;  // the first; nothing runs after it
    std::thread thread;          // last: it uses the others

    Worker() : thread([this] { loop(); }) {}
    ~Worker() {
        {
            const std::lock_guard lock(mutex);
            ending = true;
        }
        changed.notify_all();
        thread.join();
    }

    void loop() {
        std::unique_lock lock(mutex);
        while (true) {
            changed.wait(lock, [this] { return done < given || ending; });
            if (done == given) return;
            const auto& work = ring[size_t(done % places)];
            if (!failure) {
                lock.unlock();
                std::exception_ptr thrown;
                try {
                    work();
                } catch (...) {
                    thrown = std::current_exception();
                }
                lock.lock();
                failure = thrown;
            }
            ++done;
            changed.notify_all();
        }
    }
};

// Work that nobody has waited for.
struct Stream::Queue {
    std::deque<std::function<void()>> waiting;
    int64_t given = 0, done = 0;
    std::exception_ptr failure;  // the first; nothing runs after it

    ~Queue() { run_until(given); }

    void run_until(int64_t number) {
        while (done < number) {
            const std::function<void()> work = std::move(waiting.front());
            waiting.pop_front();
            ++done;
            if (failure) continue;
            try {
                work();
            } catch (...) {
                failure = std::current_exception();
            }
        }
    }
};

Stream::Stream(Mode mode)
    : worker_(mode == Mode::threaded ? std::make_unique<Worker>() : nullptr),
      queue_(mode == Mode::deferred ? std::make_unique<Queue>() : nullptr) {}
Stream::~Stream() = default;

Pending Stream::run(std::function<void()> work) {
    if (queue_) {
        queue_->waiting.push_back(std::move(work));
        return {this, ++queue_->given};
    }
    if (!worker_) {
        work();
        return {};
    }
    std::unique_lock lock(worker_->mutex);
    worker_->changed.wait(lock, [this] { return worker_->given - worker_->done < Worker::places; });
    worker_->ring[size_t(worker_->given % Worker::places)] = std::move(work);
    ++worker_->given;
    const int64_t number = worker_->given;
    lock.unlock();
    worker_->changed.notify_all();
    return {this, number};
}

void Stream::join(int64_t number) {
    if (queue_) {
        queue_->run_until(number);
        if (queue_->failure) std::rethrow_exception(queue_->failure);
        return;
    }
    std::unique_lock lock(worker_->mutex);
    worker_->changed.wait(lock, [&] { return worker_->done >= number; });
    if (worker_->failure) std::rethrow_exception(worker_->failure);
}

Pending::~Pending() {
    if (!stream_) return;
    try {
        join();
    } catch (...) {  // NOLINT: whoever joins later work of the stream gets it
    }
}

Pending::Pending(Pending&& other) noexcept
    : stream_(std::exchange(other.stream_, nullptr)), number_(other.number_) {}

Pending& Pending::operator=(Pending&& other) noexcept {
    if (this == &other) return *this;
    Pending old(std::move(*this));
    stream_ = std::exchange(other.stream_, nullptr);
    number_ = other.number_;
    return *this;
}

void Pending::join() {
    if (Stream* stream = std::exchange(stream_, nullptr)) stream->join(number_);
}

}  // namespace coeus
