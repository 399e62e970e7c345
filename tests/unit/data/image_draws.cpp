// SPDX-License-Identifier: Apache-2.0
// What is drawn for an encoded image. The numbers are those of a program in Python, written from the papers
// on Philox4x32-10 and AS 241.
#include "coeus/data/image_draws.hpp"

#include "coeus/base/error.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <vector>

using namespace coeus;

namespace {

std::vector<double> drawn(size_t count, const std::function<void(std::span<double>)>& draw) {
    std::vector<double> numbers(count);
    draw(numbers);
    return numbers;
}

}  // namespace

TEST_CASE("image draws: functions of seed and sample, bit by bit") {
    struct Known {
        uint64_t seed;
        int64_t number;
        double time, noise[3], latent_noise[2], t5, clip;
    };
    const Known all[] = {{3,
                          7,
                          0.3060690633313577,
                          {0.7612719985717605, -0.20992917256631674, 0.7228276103551876},
                          {-1.2294318587896034, 1.3831094780884057},
                          0.17774947904295096,
                          0.7329619548106643},
                         {3,
                          8,
                          0.7015907098584264,
                          {0.15291735872900022, -0.6816547409283378, 0.01473255161730492},
                          {-1.7619360365855594, 1.2481588326756528},
                          0.6639643817432292,
                          0.575085887575379},
                         {(uint64_t(1) << 40) + 5,
                          7,
                          0.7217688860355491,
                          {0.5150084100770175, 0.639933169813151, -0.6452686813362897},
                          {0.38758643864150516, -1.7283770020505018},
                          0.6207805999227038,
                          0.6034526556485467}};
    for (const Known& known : all) {
        const ImageDraws draws(known.seed);
        const int64_t number = known.number;
        CHECK(draws.time(number) == known.time);
        const auto noise = drawn(3, [&](auto out) { draws.noise(number, out); });
        for (size_t i = 0; i < 3; ++i) CHECK(std::fabs(noise[i] - known.noise[i]) < 1e-15);
        const auto latent = drawn(2, [&](auto out) { draws.latent_noise(number, out); });
        for (size_t i = 0; i < 2; ++i) CHECK(std::fabs(latent[i] - known.latent_noise[i]) < 1e-15);
        // a prompt is dropped if its number is below the probability
        const auto above = [](double x) { return std::nextafter(x, 2); };
        CHECK_FALSE(draws.dropped(number, known.t5, false).t5);
        CHECK(draws.dropped(number, above(known.t5), false).t5);
        CHECK_FALSE(draws.dropped(number, known.clip, false).clip);
        CHECK(draws.dropped(number, above(known.clip), false).clip);
        CHECK_FALSE(draws.dropped(number, known.t5, true).clip);
        CHECK(draws.dropped(number, above(known.t5), true).clip);
        // a longer noise begins with the shorter one
        const auto longer = drawn(9, [&](auto out) { draws.noise(number, out); });
        CHECK(std::equal(noise.begin(), noise.end(), longer.begin()));
    }
}

TEST_CASE("image draws: noise is normal, times are uniform, prompts are dropped independently") {
    const ImageDraws draws(11);
    constexpr int64_t samples = 2000, each = 16;
    double sum = 0, squares = 0, times = 0;
    int t5 = 0, clip = 0, both = 0, together = 0;
    std::set<double> distinct;
    for (int64_t number = 0; number < samples; ++number) {
        for (const double x : drawn(each, [&](auto out) { draws.noise(number, out); }))
            sum += x, squares += x * x, distinct.insert(x);
        const double time = draws.time(number);
        CHECK((time > 0 && time < 1));
        times += time;
        const ImageDraws::Dropped one = draws.dropped(number, 0.447, false),
                                  same = draws.dropped(number, 0.447, true);
        t5 += one.t5, clip += one.clip, both += one.t5 && one.clip;
        CHECK(same.t5 == same.clip);
        CHECK(same.t5 == one.t5);
        together += same.t5;
        CHECK_FALSE(draws.dropped(number, 0, false).t5);
        CHECK(draws.dropped(number, 1, false).clip);
    }
    CHECK(distinct.size() == size_t(samples * each));
    CHECK(std::fabs(sum / (samples * each)) < 0.02);
    CHECK(std::fabs(squares / (samples * each) - 1) < 0.03);
    CHECK(std::fabs(times / samples - 0.5) < 0.03);
    for (const int number : {t5, clip, together}) CHECK(std::fabs(number / double(samples) - 0.447) < 0.04);
    CHECK(std::fabs(both / double(samples) - 0.447 * 0.447) < 0.04);
}

TEST_CASE("image draws: latents lie around their mean, and without a variance on it") {
    const LatentScale scale = {.scale = 0.5, .shift = 3};
    std::vector<double> latents = {1, 2};
    const std::vector<double> logvar = {0, 2 * std::log(4)}, noise = {-2, 0.25};
    scale.encode(latents, logvar, noise);
    CHECK(latents[0] == 0.5 * (1 - 2 - 3));
    CHECK(std::fabs(latents[1] - 0.5 * (2 + 4 * 0.25 - 3)) < 1e-15);
    latents = {1, 2};
    scale.encode(latents, {}, noise);
    CHECK(latents == std::vector<double>{-1, -0.5});
    CHECK_THROWS_AS(scale.encode(latents, noise, {}), LogicError);
}

TEST_CASE("image draws: patches are rows of a grid, and in them the channel varies slowest") {
    constexpr int64_t channels = 2, height = 4, width = 6;
    std::vector<double> latents, noise(48, 100), noisy(48), target(48);
    for (int i = 0; i < 48; ++i) latents.push_back(i);
    mix_patches(channels, height, width, latents, noise, 0.25, noisy, target);
    // patch 4 is that of rows 2 and 3, columns 2 and 3
    const std::vector<double> elements = {14, 15, 20, 21, 38, 39, 44, 45};
    for (size_t i = 0; i < 8; ++i) {
        CHECK(noisy[4 * 8 + i] == 0.75 * elements[i] + 25);
        CHECK(target[4 * 8 + i] == 100 - elements[i]);
    }
    std::set<int64_t> places;
    for (int64_t channel = 0; channel < channels; ++channel)
        for (int64_t row = 0; row < height; ++row)
            for (int64_t column = 0; column < width; ++column)
                places.insert(place_in_patches(channels, width, channel, row, column));
    CHECK(places.size() == 48);
    CHECK(*places.rbegin() == 47);
    mix_patches(channels, height, width, latents, noise, 0, noisy, target);
    CHECK(noisy[4 * 8] == 14);
    mix_patches(channels, height, width, latents, noise, 1, noisy, target);
    CHECK(noisy[4 * 8] == 100);
    CHECK_THROWS_AS(mix_patches(2, 3, 8, latents, noise, 0, noisy, target), LogicError);
}
