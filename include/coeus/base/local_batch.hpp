// SPDX-License-Identifier: Apache-2.0
// LocalBatch: what the loader hands to the engine for a local batch, of whatever a model reads.
#pragma once

#include "coeus/base/image_samples.hpp"
#include "coeus/base/sample_rows.hpp"

namespace coeus {

/// Views of memory of another owner.
struct LocalBatch {
    LocalBatch() = default;
    LocalBatch(const SampleRows& rows) : text(rows) {}            // NOLINT(google-explicit-constructor)
    LocalBatch(const ImageSamples& samples) : images(samples) {}  // NOLINT(google-explicit-constructor)

    SampleRows text;      ///< sequences 0: the batch has no text
    ImageSamples images;  ///< samples 0: the batch has no images

    /// The samples [first, first + number).
    LocalBatch slice(int64_t first, int64_t number) const {
        LocalBatch part;
        if (text.sequences > 0) part.text = text.slice(first, number);
        if (images.samples > 0) part.images = images.slice(first, number);
        return part;
    }
};

}  // namespace coeus
