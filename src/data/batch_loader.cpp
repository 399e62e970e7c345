// SPDX-License-Identifier: Apache-2.0
#include "coeus/data/batch_loader.hpp"

#include "coeus/base/clock.hpp"
#include "coeus/base/flight_recorder.hpp"
#include "coeus/base/stop_signals.hpp"

#include <chrono>

namespace coeus {

BatchLoader::BatchLoader(std::unique_ptr<StepReader> reader, const Options& options)
    : reader_(std::move(reader)), options_(options) {
    reader_->reserve(samples_of(0, options.global_batch, options.rank, options.ranks).count);
    thread_ = std::thread([this] { run(); });
}

BatchLoader::~BatchLoader() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void BatchLoader::run() {
    try {
        for (int64_t step = 0;; ++step) {
            std::unique_lock lock(mutex_);
            // step - 2 uses the same buffer: wait until next() is called for a later step
            changed_.wait(lock, [&] { return stop_ || step - 2 < taken_; });
            if (stop_) return;
            lock.unlock();
            read_[size_t(step % 2)] = read(step);
            lock.lock();
            filled_ = step + 1;
            changed_.notify_all();
        }
    } catch (...) {
        const std::lock_guard lock(mutex_);
        error_ = std::current_exception();
        changed_.notify_all();
    }
}

ReadSamples BatchLoader::read(int64_t step) {
    const auto [first, count] = samples_of(step, options_.global_batch, options_.rank, options_.ranks);
    const Recorded recorded(OperationKind::data, operation_name::read_samples,
                            std::source_location::current());
    return reader_->read(options_.first_sample + first, count, size_t(step % 2));
}

std::optional<StepBatch> BatchLoader::next() {
    const Timer timer;
    const Recorded recorded(OperationKind::data, "wait for the next batch", std::source_location::current());
    std::unique_lock lock(mutex_);
    // this call frees the buffer of the previous batch
    const int64_t step = ++taken_;
    changed_.notify_all();
    // polling, since a signal handler cannot notify a condition variable
    constexpr std::chrono::milliseconds look(50);
    while (!changed_.wait_for(lock, look, [&] { return error_ || filled_ > step; }))
        if (stop_request() != 0) return std::nullopt;
    if (filled_ <= step) std::rethrow_exception(error_);
    const ReadSamples& read = read_[size_t(step % 2)];
    return StepBatch{.samples = read.samples,
                     .first_sample = options_.first_sample + step * options_.global_batch,
                     .counted = read.counted,
                     .seconds_waited = timer.seconds()};
}

}  // namespace coeus
