// SPDX-License-Identifier: Apache-2.0
// Prepares the next step's batch on a thread of its own while a step runs. Two buffers, made once.
#pragma once

#include "coeus/base/sample_rows.hpp"
#include "coeus/data/blend.hpp"

#include <array>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace coeus {

/// This rank's samples of one step; local batches are runs of its rows.
struct StepBatch {
    SampleRows samples;
    int64_t first_sample = 0;   ///< of the step, over all ranks
    int64_t valid_tokens = 0;   ///< labels that count, of this rank
    double seconds_waited = 0;  ///< by next(), for this batch
};

class BatchLoader {
public:
    struct Options {
        int64_t global_batch = 1;
        int64_t rank = 0, ranks = 1;  ///< of the data-parallel axes
        int64_t first_sample =
            0;  ///< of the data stream: step k has samples [first + k G, first + (k + 1) G)
    };

    /// Its files must outlive it. Starts at once with the first step.
    BatchLoader(SampleStream stream, const Options& options);
    ~BatchLoader();
    BatchLoader(const BatchLoader&) = delete;
    BatchLoader& operator=(const BatchLoader&) = delete;

    /// The next step's batch, which lives until the following call. Rethrows what went wrong on the thread.
    /// None where this process was asked to stop (base/stop_signals.hpp) while it was waited for.
    std::optional<StepBatch> next();

private:
    struct Buffer {
        std::vector<int32_t> tokens, labels, document_start;
        int64_t valid_tokens = 0;
    };
    void run();
    void fill(int64_t step, Buffer& buffer);

    SampleStream stream_;
    Options options_;
    std::array<Buffer, 2> buffers_;  // step s uses buffer s % 2
    std::mutex mutex_;
    std::condition_variable changed_;
    int64_t filled_ = 0;  // steps since the start: those below this are prepared
    int64_t taken_ = -1;  // the step handed out last, whose buffer is in use
    bool stop_ = false;
    std::exception_ptr error_;
    std::thread thread_;  // last: everything else exists before it runs
};

}  // namespace coeus
