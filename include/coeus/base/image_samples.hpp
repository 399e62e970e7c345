// SPDX-License-Identifier: Apache-2.0
// ImageSamples: encoded images on the host, mixed with noise, as the loader hands them to the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace coeus {

/// One sample after the other; the spans view memory of another owner. C channels of latents in patches of 2
/// by 2 have the width p = 4 C; an element is 4 channel + 2 row + column. Patches are in row-major order. x
/// are the latents of a sample, e its noise and t its time.
struct ImageSamples {
    int64_t samples = 0, patches = 0, patch_width = 0;
    int64_t text_tokens = 0, text_width = 0, pooled_width = 0;
    std::span<const double> noisy;     ///< (1 - t) x + t e, [samples, patches, patch_width]
    std::span<const double> target;    ///< e - x, the same shape
    std::span<const float> text;       ///< [samples, text_tokens, text_width]
    std::span<const float> pooled;     ///< [samples, pooled_width]
    std::span<const double> times;     ///< t of each sample, in [0, 1]
    std::span<const double> weights;   ///< of each sample in the loss: 1; 0 if it only fills the batch
    std::span<const double> guidance;  ///< of each sample; empty if the model reads none

    /// The samples [first, first + number).
    ImageSamples slice(int64_t first, int64_t number) const {
        const auto part = [&](auto all, int64_t each) {
            return all.empty() ? all : all.subspan(size_t(first * each), size_t(number * each));
        };
        ImageSamples some = *this;
        some.samples = number;
        some.noisy = part(noisy, patches * patch_width);
        some.target = part(target, patches * patch_width);
        some.text = part(text, text_tokens * text_width);
        some.pooled = part(pooled, pooled_width);
        some.times = part(times, 1);
        some.weights = part(weights, 1);
        some.guidance = part(guidance, 1);
        return some;
    }
};

}  // namespace coeus
