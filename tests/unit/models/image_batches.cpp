// SPDX-License-Identifier: Apache-2.0
// The parts of batches of images that a rank takes.
#include "coeus/models/image_batches.hpp"

#include "support/catch.hpp"
#include "support/test_images.hpp"

#include <algorithm>
#include <cmath>

using namespace coeus;
using namespace coeus::test;

namespace {

const ImageSizes image_sizes = {.text_tokens = 4,
                                .patches = 6,
                                .patch_width = 3,
                                .text_width = 2,
                                .pooled_width = 5,
                                .reads_guidance = true};

template <class T>
std::vector<double> numbers(const std::vector<T>& of, int64_t first, int64_t count) {
    return {of.begin() + first, of.begin() + first + count};
}

}  // namespace

TEST_CASE("image batches: each rank has its run of the text and of the patches of every sample") {
    const TestImages images(image_sizes, 4);
    Exec exec;
    for (const int64_t ranks : {1, 2})
        for (int64_t rank = 0; rank < ranks; ++rank) {
            CAPTURE(ranks, rank);
            const int64_t text = 4 / ranks, patches = 6 / ranks, count = text + patches;
            const ImageBatches kind(image_sizes, Dtype::f64);
            const auto part =
                kind.part({{4, 10}, 2, 2}, {.count = count, .first = rank * count}, host_device());
            part->stage(1, images.view());
            const Batch all = part->bring(exec, 1);
            CHECK(all.sequences == 4);
            CHECK(all.seq_len == count);
            for (int64_t micro = 0; micro < 2; ++micro) {
                const Batch batch = all.slice(2 * micro, 2);
                const ImageRows& rows = batch.images;
                const Batch planned = kind.planned({2, 10}, int(ranks));
                for (const auto tensor : {&ImageRows::noisy, &ImageRows::text, &ImageRows::pooled,
                                          &ImageRows::times, &ImageRows::guidance, &ImageRows::target,
                                          &ImageRows::weights, &ImageRows::order, &ImageRows::back}) {
                    CHECK((rows.*tensor).shape == (planned.images.*tensor).shape);
                    CHECK((rows.*tensor).dtype == (planned.images.*tensor).dtype);
                }
                CHECK(batch.positions.shape == planned.positions.shape);
                for (int64_t s = 0; s < 2; ++s) {
                    const int64_t sample = 2 * micro + s;
                    const int64_t first_patch = (sample * 6 + rank * patches) * 3;
                    CHECK(values(rows.noisy.slice_rows(s * patches, patches)) ==
                          numbers(images.noisy, first_patch, patches * 3));
                    CHECK(values(rows.target.slice_rows(s * patches, patches)) ==
                          numbers(images.target, first_patch, patches * 3));
                    CHECK(values(rows.text.slice_rows(s * text, text)) ==
                          numbers(images.text, (sample * 4 + rank * text) * 2, text * 2));
                    CHECK(values(rows.pooled.slice_rows(s, 1)) == numbers(images.pooled, sample * 5, 5));
                    CHECK(values(rows.times.slice_rows(s, 1)) ==
                          features_of_time(images.times[size_t(sample)]));
                    CHECK(values(rows.guidance.slice_rows(s, 1)) ==
                          features_of_time(images.guidance[size_t(sample)]));
                    CHECK(element(rows.weights, s) == images.weights[size_t(sample)]);
                    for (int64_t i = 0; i < count; ++i) {
                        const bool is_text = i < text;
                        CHECK(element(batch.positions, s * count + i) ==
                              double(is_text ? 0 : 1 + rank * patches + i - text));
                        const auto order = int64_t(element(rows.order, s * count + i));
                        CHECK(order == (is_text ? s * text + i : 2 * text + s * patches + i - text));
                        CHECK(element(rows.back, order) == double(s * count + i));
                    }
                }
            }
        }
}

TEST_CASE("image batches: what a local batch lacks, or has too much, is refused") {
    const ImageBatches kind(image_sizes, Dtype::f32);
    const auto part = kind.part({{2, 10}}, {.count = 10}, host_device());
    CHECK_THROWS_WITH(part->stage(0, TestImages(image_sizes, 3).view()),
                      Catch::Contains("a local batch does not have the planned number of samples"));
    const TestImages images(image_sizes, 2);
    for (const bool few : {false, true}) {
        ImageSamples samples = images.view();
        if (few)
            samples.text = samples.text.first(3);
        else
            samples.noisy = samples.noisy.first(6);
        CHECK_THROWS_WITH(part->stage(0, samples),
                          Catch::Contains("a local batch does not have the planned shape"));
    }
    ImageSamples no_guidance = images.view();
    no_guidance.guidance = {};
    CHECK_THROWS_WITH(part->stage(0, no_guidance),
                      Catch::Contains("a local batch does not have a number for each sample"));
    CHECK_THROWS_AS(kind.planned({2, 9}, 1), LogicError);
    CHECK_THROWS_AS(image_sizes.divided(4), LogicError);
}

TEST_CASE("image batches: their bytes are those of what the loader reads, and of a rank's part") {
    const int64_t latents = 6 * 3, text = 4 * 2, tokens = 10;
    const int64_t read = (2 * latents + 3) * 8 + (text + 5) * 4;
    for (const Dtype type : {Dtype::f64, Dtype::bf16}) {
        const ImageBatches kind(image_sizes, type);
        const int64_t one = size_of(type), sum = size_of(acc_of(type));
        for (const int ranks : {1, 2}) {
            CAPTURE(name_of(type), ranks);
            const int64_t own =
                (latents / ranks + text / ranks + 5 + 2 * time_features) * one + (latents / ranks + 1) * sum;
            // 3 local batches of 4 samples in 2 micro-batches, and a validation batch of 1 sample
            const int64_t tables = 4 * (tokens / ranks) * (4 + 1 + 2 * (2 + 1));
            const BatchBytes cpu = kind.bytes({{4, tokens}, 3, 2}, {1, tokens}, ranks, Backend::cpu),
                             gpu = kind.bytes({{4, tokens}, 3, 2}, {1, tokens}, ranks, Backend::cuda);
            CHECK(cpu.host == (2 * 12 + 1) * read + (12 + 1) * own + tables);
            CHECK(cpu.device == 0);
            CHECK(gpu.host == (2 * 12 + 1) * read + (12 + 1) * own);
            CHECK(gpu.device == (4 + 1) * own + tables);
        }
    }
    CHECK(std::string(ImageBatches(image_sizes, Dtype::f32).name()) == "image batches");
}

TEST_CASE("image batches: drawn samples are normal, have times from 0 to 1, and are the same each time") {
    const ImageBatches kind(image_sizes, Dtype::f32);
    const auto drawn = kind.drawn({3, 10}), again = kind.drawn({3, 10});
    const ImageSamples& images = drawn->images;
    CHECK(images.samples == 3);
    CHECK(std::ranges::equal(images.noisy, again->images.noisy));
    CHECK(std::ranges::equal(images.text, again->images.text));
    CHECK(images.target.size() == size_t(3 * 6 * 3));
    CHECK_FALSE(std::ranges::equal(images.noisy, images.target));
    CHECK(std::ranges::all_of(images.times, [](double t) { return t > 0 && t < 1; }));
    const auto part = kind.part({{3, 10}}, {.count = 10}, host_device());
    part->stage(0, *drawn);
    const std::vector<double> features = features_of_time(0.5);
    CHECK(features.size() == size_t(time_features));
    CHECK(features.front() == std::cos(500.0));
    CHECK(features[time_features / 2] == std::sin(500.0));
}
