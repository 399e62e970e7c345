// SPDX-License-Identifier: Apache-2.0
// What is drawn for an encoded image: its time, its noise, the noise of its latents, and whether its prompt
// is dropped. Everything is a function of (seed, number of the sample in the run), so that every mesh,
// backend and restart has the same. And how latents, noise and time become what a model reads.
#pragma once

#include <cstdint>
#include <span>

namespace coeus {

class ImageDraws {
public:
    explicit ImageDraws(uint64_t seed) : seed_(seed) {}

    /// Uniform in (0, 1).
    double time(int64_t number) const;
    /// Standard normal numbers: the noise that is mixed with the latents.
    void noise(int64_t number, std::span<double> out) const;
    /// Standard normal numbers: where the latents lie around their mean.
    void latent_noise(int64_t number, std::span<double> out) const;

    /// Which encodings of a prompt are replaced by those of the empty prompt.
    struct Dropped {
        bool t5 = false, clip = false;
    };
    /// Each with this probability, independently; `together`: both or none.
    Dropped dropped(int64_t number, double probability, bool together) const;

private:
    uint64_t seed_;
};

/// How an autoencoder's output becomes latents: x = scale (mean + e^(logvar / 2) noise - shift).
struct LatentScale {
    double scale = 1, shift = 0;
    /// x in place of `mean`. An empty logvar: the mean alone is taken.
    void encode(std::span<double> mean, std::span<const double> logvar, std::span<const double> noise) const;
};

/// The place of element (channel, row, column) of latents [channels, height, width] in patches of 2 by 2, in
/// row-major order; in a patch the channel varies slowest.
constexpr int64_t place_in_patches(int64_t channels, int64_t width, int64_t channel, int64_t row,
                                   int64_t column) {
    const int64_t patch = row / 2 * (width / 2) + column / 2;
    return patch * 4 * channels + 4 * channel + 2 * (row % 2) + column % 2;
}

/// Latents x [channels, height, width] mixed with noise e of the same shape, as patches: (1 - t) x + t e, and
/// the target e - x.
void mix_patches(int64_t channels, int64_t height, int64_t width, std::span<const double> latents,
                 std::span<const double> noise, double time, std::span<double> noisy,
                 std::span<double> target);

}  // namespace coeus
