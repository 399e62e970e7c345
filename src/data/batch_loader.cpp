// SPDX-License-Identifier: Apache-2.0
#include "coeus/data/batch_loader.hpp"

#include "coeus/base/clock.hpp"
#include "coeus/base/flight_recorder.hpp"
#include "coeus/base/stop_signals.hpp"

#include <chrono>

namespace coeus {

BatchLoader::BatchLoader(SampleStream stream, const Options& options)
    : stream_(std::move(stream)), options_(options) {
    const size_t tokens =
        size_t(samples_of(0, options.global_batch, options.rank, options.ranks).count * stream_.seq_len());
    for (Buffer& buffer : buffers_) {
        buffer.tokens.resize(tokens);
        buffer.labels.resize(tokens);
        buffer.document_start.resize(tokens);
    }
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
            fill(step, buffers_[size_t(step % 2)]);
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

void BatchLoader::fill(int64_t step, Buffer& buffer) {
    const auto [first, count] = samples_of(step, options_.global_batch, options_.rank, options_.ranks);
    const auto length = size_t(stream_.seq_len());
    buffer.counted = 0;
    const Recorded recorded(OperationKind::data, operation_name::read_samples,
                            std::source_location::current());
    for (int64_t row = 0; row < count; ++row) {
        const auto part = [&](std::vector<int32_t>& all) {
            return std::span(all).subspan(size_t(row) * length, length);
        };
        buffer.counted += stream_.sample(options_.first_sample + first + row, part(buffer.tokens),
                                         part(buffer.labels), part(buffer.document_start));
    }
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
    const Buffer& buffer = buffers_[size_t(step % 2)];
    const int64_t rows = samples_of(0, options_.global_batch, options_.rank, options_.ranks).count;
    return StepBatch{.samples = {.sequences = rows,
                                 .seq_len = stream_.seq_len(),
                                 .tokens = buffer.tokens,
                                 .labels = buffer.labels,
                                 .document_start = buffer.document_start},
                     .first_sample = options_.first_sample + step * options_.global_batch,
                     .counted = buffer.counted,
                     .seconds_waited = timer.seconds()};
}

}  // namespace coeus
