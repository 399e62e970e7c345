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

// A thread and a ring of waiting work. Work item n, counted from 1, is in slot n - 1 modulo the ring's size.
struct Stream::Worker {
    Stream& stream;
    std::array<std::function<void()>, places_> ring;
    std::mutex mutex;
    std::condition_variable changed;
    int64_t given = 0, done = 0;
    bool ending = false;
    std::exception_ptr failure;  // the first failure; no work runs after it
    std::thread thread;          // last, since it uses the other members

    explicit Worker(Stream& s) : stream(s), thread([this] { loop(); }) {}
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
        stream.exec_.queue->enter_thread();
        while (true) {
            changed.wait(lock, [this] { return done < given || ending; });
            if (done == given) return;
            const auto& work = ring[size_t(done % places_)];
            if (!failure) {
                lock.unlock();
                std::exception_ptr thrown;
                try {
                    work();
                    stream.work_done(done + 1);
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

// Deferred mode: work that nobody has waited for yet.
struct Stream::Waiting {
    Stream& stream;
    std::deque<std::function<void()>> work;
    int64_t given = 0, done = 0;
    std::exception_ptr failure;  // the first failure; no work runs after it

    explicit Waiting(Stream& s) : stream(s) {}
    ~Waiting() { run_until(given); }

    void run_until(int64_t number) {
        while (done < number) {
            const std::function<void()> next = std::move(work.front());
            work.pop_front();
            ++done;
            if (failure) continue;
            try {
                next();
                stream.work_done(done);
            } catch (...) {
                failure = std::current_exception();
            }
        }
    }
};

Stream::Stream(Mode mode) : Stream(mode, Exec()) {}

Stream::Stream(Mode mode, const Exec& computation, Priority priority)
    : beside_(computation.is_synchronous() ? nullptr : computation.queue.get()),
      exec_(*computation.device, priority) {
    if (mode == Mode::threaded) worker_ = std::make_unique<Worker>(*this);
    if (mode == Mode::deferred) waiting_ = std::make_unique<Waiting>(*this);
}
Stream::~Stream() = default;

Pending Stream::run(std::function<void()> work) {
    if (beside_) exec_.queue->wait_for(*beside_, beside_->mark());
    if (waiting_) {
        waiting_->work.push_back(std::move(work));
        return {this, ++waiting_->given};
    }
    if (!worker_) {
        work();
        if (!beside_) return {};
        work_done(++given_);
        return {this, given_};
    }
    std::unique_lock lock(worker_->mutex);
    worker_->changed.wait(lock, [this] { return worker_->given - worker_->done < places_; });
    worker_->ring[size_t(worker_->given % places_)] = std::move(work);
    ++worker_->given;
    const int64_t number = worker_->given;
    lock.unlock();
    worker_->changed.notify_all();
    return {this, number};
}

void Stream::work_done(int64_t number) {
    if (beside_) done_[size_t(number % places_)] = exec_.queue->mark();
}

void Stream::join(int64_t number) {
    if (waiting_) {
        waiting_->run_until(number);
        if (waiting_->failure) std::rethrow_exception(waiting_->failure);
    }
    if (worker_) {
        std::unique_lock lock(worker_->mutex);
        worker_->changed.wait(lock, [&] { return worker_->done >= number; });
        if (worker_->failure) std::rethrow_exception(worker_->failure);
    }
    if (beside_) beside_->wait_for(*exec_.queue, done_[size_t(number % places_)]);
}

Pending::~Pending() {
    if (!stream_) return;
    try {
        join();
    } catch (...) {  // NOLINT: the next join() of later work on the stream rethrows it
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
