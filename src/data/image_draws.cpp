// SPDX-License-Identifier: Apache-2.0
#include "coeus/data/image_draws.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/random.hpp"

#include <cmath>
#include <cstddef>
#include <string_view>

namespace coeus {

namespace {

// A stream of its own for each sample.
RandomStream stream_of_sample(uint64_t seed, std::string_view use, int64_t number) {
    return {seed, stream_of(use) + uint64_t(number)};
}

void draw_normal(const RandomStream& stream, std::span<double> out) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = normal_quantile(stream.uniform(i));
}

}  // namespace

double ImageDraws::time(int64_t number) const {
    return RandomStream(seed_, "images: time").uniform(uint64_t(number));
}

void ImageDraws::noise(int64_t number, std::span<double> out) const {
    draw_normal(stream_of_sample(seed_, "images: noise", number), out);
}

void ImageDraws::latent_noise(int64_t number, std::span<double> out) const {
    draw_normal(stream_of_sample(seed_, "images: noise of latents", number), out);
}

ImageDraws::Dropped ImageDraws::dropped(int64_t number, double probability, bool together) const {
    const auto drops = [&](std::string_view use) {
        return RandomStream(seed_, use).uniform(uint64_t(number)) < probability;
    };
    const bool t5 = drops("images: dropped prompt of T5");
    return {t5, together ? t5 : drops("images: dropped prompt of CLIP")};
}

void LatentScale::encode(std::span<double> mean, std::span<const double> logvar,
                         std::span<const double> noise) const {
    require(logvar.empty() || (logvar.size() == mean.size() && noise.size() == mean.size()),
            "mean, logvar and noise of the same latents");
    for (size_t i = 0; i < mean.size(); ++i) {
        const double drawn = logvar.empty() ? mean[i] : mean[i] + std::exp(logvar[i] / 2) * noise[i];
        mean[i] = scale * (drawn - shift);
    }
}

void mix_patches(int64_t channels, int64_t height, int64_t width, std::span<const double> latents,
                 std::span<const double> noise, double time, std::span<double> noisy,
                 std::span<double> target) {
    const auto count = size_t(channels * height * width);
    require(height % 2 == 0 && width % 2 == 0 && latents.size() == count && noise.size() == count &&
                noisy.size() == count && target.size() == count,
            "latents of whole patches");
    size_t from = 0;
    for (int64_t channel = 0; channel < channels; ++channel)
        for (int64_t row = 0; row < height; ++row)
            for (int64_t column = 0; column < width; ++column, ++from) {
                const auto to = size_t(place_in_patches(channels, width, channel, row, column));
                noisy[to] = (1 - time) * latents[from] + time * noise[from];
                target[to] = noise[from] - latents[from];
            }
}

}  // namespace coeus
