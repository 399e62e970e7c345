// SPDX-License-Identifier: Apache-2.0
// ImageStream: the samples of files of encoded images, in the order of a run, with their draws. ImageReader:
// reads them for a BatchLoader.
#pragma once

#include "coeus/base/image_samples.hpp"
#include "coeus/data/blend.hpp"
#include "coeus/data/encoded_file.hpp"
#include "coeus/data/image_draws.hpp"
#include "coeus/data/step_reader.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace coeus {

/// Memory of samples, one after the other.
class ImageBuffer {
public:
    ImageBuffer() = default;
    ImageBuffer(const EncodedShape& shape, int64_t samples);

    /// Where a sample is written.
    struct Row {
        std::span<double> noisy, target;  ///< as patches
        std::span<float> text, pooled;
        double *time, *weight;
    };
    Row row(int64_t sample);
    /// The first `samples` samples.
    ImageSamples view(int64_t samples) const;

private:
    EncodedShape shape_;
    std::vector<double> noisy_, target_, times_, weights_;
    std::vector<float> text_, pooled_;
};

class ImageStream {
public:
    enum class Times : uint8_t {
        drawn,        ///< uniform
        eighths,      ///< (k + 0.5) / 8 for k = 0 to 7 in turn, one for each sample
        all_eighths,  ///< the same, all eight for each sample: a sample is read eight times in a row
    };
    struct Options {
        uint64_t seed = 0;  ///< of the order and of the draws
        bool shuffle = false;
        Subset subset = Subset::all;
        double drop_prompts = 0;  ///< with this probability an encoding becomes that of the empty prompt
        bool drop_together = false;
        Times times = Times::drawn;  ///< of files without /times
    };

    /// The files must outlive the stream. Without weights, they are weighted by their sizes. ConfigError: two
    /// files have other extents or encodings; a file has no encodings of the empty prompt, which would
    /// replace others; a file has too few samples to hold some out; files have times, some do not, or all
    /// eighths are asked for.
    ImageStream(std::vector<const EncodedFile*> files, const std::vector<double>& weights,
                const Options& options);

    const EncodedShape& shape() const { return files_[0]->shape(); }
    const SourceBlend& blend() const { return blend_; }
    const EncodedFile& file(size_t number) const { return *files_[number]; }
    /// Rows before a sample is read again, other than for another of the eighths.
    int64_t first_epoch() const { return repeats() * blend_.first_epoch(); }

    /// Writes row i of the run, with weight 1. Not thread-safe. ConfigError as EncodedFile::read().
    void read(int64_t i, const ImageBuffer::Row& to);

private:
    int64_t repeats() const { return options_.times == Times::all_eighths ? times_in_turn : 1; }
    void read_text(int64_t i, const SourceBlend::Place& place, const ImageBuffer::Row& to) const;
    double time_of(int64_t i, const SourceBlend::Place& place) const;

    static constexpr int64_t times_in_turn = 8;
    struct EmptyPrompt {
        std::vector<float> t5, clip;
    };
    std::vector<const EncodedFile*> files_;
    Options options_;
    ImageDraws draws_;
    SourceBlend blend_;
    std::vector<EmptyPrompt> empty_;  // of each file; empty if no prompt is dropped
    std::vector<double> latents_, logvar_, noise_;
};

class ImageReader : public StepReader {
public:
    /// The files of the stream must outlive the reader.
    explicit ImageReader(ImageStream stream) : stream_(std::move(stream)) {}

    void reserve(int64_t samples) override;
    /// Counts elements of latents.
    ReadSamples read(int64_t first, int64_t number, size_t buffer) override;

private:
    ImageStream stream_;
    std::array<ImageBuffer, buffers> buffers_;
};

}  // namespace coeus
