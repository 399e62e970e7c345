// SPDX-License-Identifier: Apache-2.0
// Prepares the next step's batch on a separate thread while the current step runs. Its two buffers are
// allocated once.
#pragma once

#include "coeus/data/step_reader.hpp"

#include <array>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

namespace coeus {

/// This rank's samples of one step. A local batch is a range of its rows.
struct StepBatch {
    LocalBatch samples;
    int64_t first_sample = 0;   ///< first sample of the step, over all ranks
    int64_t counted = 0;        ///< what the mean of the loss counts in this rank's samples: see ReadSamples
    double seconds_waited = 0;  ///< how long next() waited for this batch
};

class BatchLoader {
public:
    struct Options {
        int64_t global_batch = 1;
        int64_t rank = 0, ranks = 1;  ///< the data-parallel rank, and how many there are
        /// Where the data stream starts: step k has samples [first + k G, first + (k + 1) G).
        int64_t first_sample = 0;
    };

    /// The thread begins to prepare the first batch at once.
    BatchLoader(std::unique_ptr<StepReader> reader, const Options& options);
    /// Reads windows of tokens. The files of the stream must outlive the loader.
    BatchLoader(SampleStream stream, const Options& options)
        : BatchLoader(std::make_unique<TokenReader>(std::move(stream)), options) {}
    ~BatchLoader();
    BatchLoader(const BatchLoader&) = delete;
    BatchLoader& operator=(const BatchLoader&) = delete;

    /// Returns the next step's batch, which is valid until the following call. Returns nothing if the process
    /// was asked to stop (base/stop_signals.hpp) before the batch was ready. Rethrows an exception of the
    /// thread.
    std::optional<StepBatch> next();

private:
    void run();
    ReadSamples read(int64_t step);

    std::unique_ptr<StepReader> reader_;
    Options options_;
    std::array<ReadSamples, StepReader::buffers> read_;  // step s uses buffer s % 2
    std::mutex mutex_;
    std::condition_variable changed_;
    int64_t filled_ = 0;  // steps below this number (counted from the start) are prepared
    int64_t taken_ = -1;  // the step that next() returned last, whose buffer is in use
    bool stop_ = false;
    std::exception_ptr error_;
    std::thread thread_;  // last, so that everything else exists before it runs
};

}  // namespace coeus
