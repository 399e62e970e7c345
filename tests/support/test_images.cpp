// SPDX-License-Identifier: Apache-2.0
#include "support/test_images.hpp"

#include "coeus/base/random.hpp"

#include <numeric>

namespace coeus::test {

FluxConfig tiny_flux(int64_t depth, int64_t depth_single_blocks) {
    return {.flavor = "tiny",
            .hidden_size = 12,
            .num_heads = 2,
            .depth = depth,
            .depth_single_blocks = depth_single_blocks,
            .mlp_ratio = 1.5,
            .axes_dim = {0, 4, 2},
            .in_channels = 4,
            .context_in_dim = 5,
            .vec_in_dim = 7,
            .guidance_embed = false,
            .qk_norm_eps = 0.01,
            .text_tokens = 3,
            .patch_rows = 2,
            .patch_columns = 3};
}

TestImages::TestImages(const ImageSizes& of, int64_t number, uint64_t seed) : sizes(of), samples(number) {
    const auto normal = [&](auto& to, int64_t count, const char* stream) {
        const RandomStream random(seed, stream);
        to.resize(size_t(count));
        for (size_t i = 0; i < to.size(); ++i) to[i] = float(normal_quantile(random.uniform(i)));
    };
    const int64_t latents = samples * sizes.patches * sizes.patch_width;
    normal(noisy, latents, "noisy");
    normal(target, latents, "target");
    normal(text, samples * sizes.text_tokens * sizes.text_width, "text");
    normal(pooled, samples * sizes.pooled_width, "pooled");
    const RandomStream random(seed, "times");
    for (int64_t s = 0; s < samples; ++s) {
        // features of small times do not differ by much more than finite differences
        times.push_back(random.uniform(uint64_t(s)));
        weights.push_back(s >= 2 && s + 1 == samples ? 0 : 1);
        if (sizes.reads_guidance) guidance.push_back(random.uniform(uint64_t(samples + s)));
    }
}

ImageSamples TestImages::view() const {
    return {.samples = samples,
            .patches = sizes.patches,
            .patch_width = sizes.patch_width,
            .text_tokens = sizes.text_tokens,
            .text_width = sizes.text_width,
            .pooled_width = sizes.pooled_width,
            .noisy = noisy,
            .target = target,
            .text = text,
            .pooled = pooled,
            .times = times,
            .weights = weights,
            .guidance = guidance};
}

int64_t TestImages::counted() const {
    return int64_t(std::accumulate(weights.begin(), weights.end(), 0.0)) * sizes.patches * sizes.patch_width;
}

TestImageBatch::TestImageBatch(const TestImages& images)
    : part_(images.sizes, Dtype::f64, {{images.samples, images.sizes.tokens()}}, 1, 0),
      batch_(images.samples, images.sizes.tokens(), 1) {
    part_.stage(0, images.view());
    Exec exec;
    const Batch brought = part_.bring(exec, 0);
    batch_.images = brought.images;
    const auto* positions = brought.positions.as<const int32_t>();
    batch_.positions.assign(positions, positions + brought.positions.count());
    batch_.labels.assign(size_t(images.counted()), 0);
}

}  // namespace coeus::test
