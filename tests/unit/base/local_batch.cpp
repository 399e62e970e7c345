// SPDX-License-Identifier: Apache-2.0
// Slices of local batches: of text, of images, and of neither.
#include "coeus/base/local_batch.hpp"

#include "support/catch.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

using namespace coeus;

TEST_CASE("local batch: a slice has its samples of everything, and of nothing else") {
    std::vector<double> latents(3 * 2 * 4), times = {0.25, 0.5, 0.75};
    std::iota(latents.begin(), latents.end(), 0);
    std::vector<float> text(3 * 5 * 2), pooled(3 * 7);
    std::iota(text.begin(), text.end(), 0.F);
    std::iota(pooled.begin(), pooled.end(), 0.F);
    const ImageSamples all = {.samples = 3,
                              .patches = 2,
                              .patch_width = 4,
                              .text_tokens = 5,
                              .text_width = 2,
                              .pooled_width = 7,
                              .noisy = latents,
                              .target = latents,
                              .text = text,
                              .pooled = pooled,
                              .times = times,
                              .weights = times,
                              .guidance = {}};
    const LocalBatch slice = LocalBatch(all).slice(1, 2);
    CHECK(slice.text.sequences == 0);
    CHECK(slice.images.samples == 2);
    for (const auto& part : {slice.images.noisy, slice.images.target}) {
        CHECK(part.size() == 16);
        CHECK(part[0] == 8);
    }
    CHECK(slice.images.text.size() == 20);
    CHECK(slice.images.text[0] == 10);
    CHECK(slice.images.pooled.size() == 14);
    CHECK(slice.images.pooled[0] == 7);
    for (const auto& part : {slice.images.times, slice.images.weights})
        CHECK(std::ranges::equal(part, std::vector<double>{0.5, 0.75}));
    CHECK(slice.images.guidance.empty());
    CHECK(slice.images.patches == 2);
    CHECK(slice.images.text_width == 2);

    const std::vector<int32_t> ids = {1, 2, 3, 4, 5, 6};
    const LocalBatch rows =
        LocalBatch(SampleRows{.sequences = 3, .seq_len = 2, .tokens = ids, .labels = ids}).slice(2, 1);
    CHECK(rows.images.samples == 0);
    CHECK(rows.text.sequences == 1);
    CHECK(rows.text.tokens[0] == 5);
    CHECK(LocalBatch().slice(0, 1).text.sequences == 0);
}
