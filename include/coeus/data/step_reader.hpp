// SPDX-License-Identifier: Apache-2.0
// StepReader: reads the samples of steps for a BatchLoader. TokenReader: windows of token files.
#pragma once

#include "coeus/base/local_batch.hpp"
#include "coeus/data/blend.hpp"

#include <array>
#include <vector>

namespace coeus {

/// Samples that were read.
struct ReadSamples {
    LocalBatch samples;
    int64_t counted = 0;  ///< what the mean of the loss counts: labels that are not masked
};

/// The loader's thread calls it.
class StepReader {
public:
    StepReader() = default;
    virtual ~StepReader() = default;
    StepReader(const StepReader&) = delete;
    StepReader& operator=(const StepReader&) = delete;

    static constexpr size_t buffers = 2;
    /// Makes room for so many samples in each buffer.
    virtual void reserve(int64_t samples) = 0;
    /// Reads the samples [first, first + number) into this buffer. The result views the buffer.
    virtual ReadSamples read(int64_t first, int64_t number, size_t buffer) = 0;
};

class TokenReader : public StepReader {
public:
    /// The files of the stream must outlive the reader. `masks_documents`: the samples have document starts.
    explicit TokenReader(SampleStream stream, bool masks_documents = true)
        : stream_(std::move(stream)), masks_documents_(masks_documents) {}

    void reserve(int64_t samples) override;
    ReadSamples read(int64_t first, int64_t number, size_t buffer) override;

private:
    struct Buffer {
        std::vector<int32_t> tokens, labels, document_start;
    };
    SampleStream stream_;
    bool masks_documents_;
    std::array<Buffer, buffers> buffers_;
};

}  // namespace coeus
