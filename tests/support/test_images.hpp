// SPDX-License-Identifier: Apache-2.0
// Encoded images for tests of models that read them.
#pragma once

#include "coeus/models/flux_config.hpp"
#include "coeus/models/image_batches.hpp"
#include "support/model.hpp"

#include <vector>

namespace coeus::test {

/// Small, odd sizes: hidden size 12, 2 heads of 6, 3 tokens of text, 2 x 3 patches.
FluxConfig tiny_flux(int64_t depth = 1, int64_t depth_single_blocks = 2);

/// Samples that own their memory, drawn by the seed. The last one only fills the batch, if there are three or
/// more.
class TestImages {
public:
    TestImages(const ImageSizes& of, int64_t number, uint64_t seed = 1);

    ImageSamples view() const;
    /// The samples [first, first + count).
    LocalBatch local_batch(int64_t first, int64_t count) const { return view().slice(first, count); }
    /// What the loss is a mean of: numbers of patches in samples that count.
    int64_t counted() const;

    ImageSizes sizes;
    int64_t samples;
    std::vector<double> noisy, target, times, weights, guidance;
    std::vector<float> text, pooled;
};

/// All samples as one micro-batch in float64.
class TestImageBatch {
public:
    explicit TestImageBatch(const TestImages& images);
    /// Views memory of this object. Its valid labels are as many as the numbers that the loss is a mean of.
    const TestBatch& batch() const { return batch_; }

private:
    ImagePart part_;
    TestBatch batch_;
};

}  // namespace coeus::test
