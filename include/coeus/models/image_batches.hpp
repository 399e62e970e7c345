// SPDX-License-Identifier: Apache-2.0
// ImageBatches: batches of encoded images, which models of images read. ImagePart: this rank's part of them.
#pragma once

#include "coeus/device/staged_tensor.hpp"
#include "coeus/models/batch_kind.hpp"

#include <vector>

namespace coeus {

/// What a model reads of each sample: so many tokens of text, then so many patches of an image.
struct ImageSizes {
    int64_t text_tokens = 0, patches = 0;
    int64_t patch_width = 0, text_width = 0, pooled_width = 0;
    bool reads_guidance = false;

    int64_t tokens() const { return text_tokens + patches; }
    /// Those of each of `ranks` ranks that divide every sample. LogicError if they cannot.
    ImageSizes divided(int64_t ranks) const;
};

/// Features of a time, of which there are so many (Vaswani et al. 2017): for x = 1000 t, the cosines of x /
/// 10000^(2j / n), then their sines.
inline constexpr int64_t time_features = 256;
std::vector<double> features_of_time(double time);

/// Samples are sequences of ImageSizes::tokens() tokens. Context-parallel ranks have equal runs of the text
/// and of the patches of each.
class ImageBatches : public BatchKind {
public:
    /// Layers compute in `type`.
    ImageBatches(const ImageSizes& sizes, Dtype type) : sizes_(sizes), type_(type) {}

    const char* name() const override { return "image batches"; }
    /// The host has the samples of two steps (one in use, one being read) and of a validation batch, and this
    /// rank's part of those of a step. A GPU has this rank's part of one local batch.
    BatchBytes bytes(const LocalBatches& training, const BatchShape& validation, int ranks,
                     Backend backend) const override;
    std::unique_ptr<BatchPart> part(const LocalBatches& batches, const SequencePart& part,
                                    const Device& device) const override;
    Batch planned(const BatchShape& shape, int ranks) const override;
    /// Normal latents, noise and encodings, and times from 0 to 1.
    std::shared_ptr<const LocalBatch> drawn(const BatchShape& shape) const override;

private:
    ImageSizes sizes_;
    Dtype type_;
};

class ImagePart : public BatchPart {
public:
    /// For `batches` of this many samples; this rank is number `rank` of `ranks` that divide every sample.
    /// Allocates the memory.
    ImagePart(const ImageSizes& sizes, Dtype type, const LocalBatches& batches, int64_t ranks, int64_t rank,
              const Device& device = host_device());

    /// A local batch has exactly the planned number of samples.
    void stage(int64_t place, const LocalBatch& batch) override;
    Batch bring(Exec& exec, int64_t place) const override;

private:
    ImageSizes sizes_, own_;
    int64_t samples_, rank_;
    StagedTensor noisy_, text_, pooled_, times_, guidance_, target_, weights_;
    OwnedTensor positions_, order_, back_;  // the same for all local batches
};

}  // namespace coeus
