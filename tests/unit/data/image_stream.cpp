// SPDX-License-Identifier: Apache-2.0
// The samples of files of encoded images as a run reads them: order, crops, draws, given times and noise,
// dropped prompts, blends.
#include "coeus/data/image_stream.hpp"

#include "coeus/base/error.hpp"
#include "coeus/data/batch_loader.hpp"
#include "support/catch.hpp"
#include "support/encoded_images.hpp"
#include "support/paths.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <set>
#include <vector>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

constexpr EncodedShape images_in_stream = {
    .channels = 2, .height = 4, .width = 6, .text_tokens = 3, .text_width = 5, .pooled_width = 7};

// A sample as the stream writes it.
struct ReadImage {
    explicit ReadImage(ImageStream& stream, int64_t number) : buffer(stream.shape(), 1) {
        stream.read(number, buffer.row(0));
    }
    ImageSamples view() const { return buffer.view(1); }
    ImageBuffer buffer;
};

std::vector<float> part_of_array(const EncodedImages& images, const std::string& name, int64_t sample) {
    const EncodedImages::Array& array = images.arrays.at(name);
    const auto each = array.values.size() / size_t(array.shape[0]);
    const auto begin = array.values.begin() + int64_t(each) * sample;
    return {begin, begin + int64_t(each)};
}

// The sample of the file whose text a row has.
int64_t sample_of_row(const EncodedImages& images, std::span<const float> pooled) {
    for (int64_t sample = 0;; ++sample)
        if (std::ranges::equal(part_of_array(images, "clip", sample), pooled)) return sample;
}

}  // namespace

TEST_CASE("image stream: a sample is its latents, mixed with its noise at its time, and its text") {
    const TemporaryFolder folder;
    const EncodedImages images = encoded_images(5, images_in_stream);
    const EncodedFile file(images.write(folder / "a.h5"));
    ImageStream stream({&file}, {}, {.seed = 6, .shuffle = true});
    CHECK(stream.first_epoch() == 5);
    const SampleOrder order(5, {.seed = 6, .shuffle = true});
    const ImageDraws draws(6);
    for (const int64_t number : {0, 3, 4, 17}) {
        CAPTURE(number);
        const ReadImage read(stream, number);
        const ImageSamples view = read.view();
        const int64_t sample = order(number);
        CHECK(std::ranges::equal(view.text, part_of_array(images, "t5", sample)));
        CHECK(std::ranges::equal(view.pooled, part_of_array(images, "clip", sample)));
        CHECK(view.times[0] == draws.time(number));
        CHECK(view.weights[0] == 1);
        CHECK(view.guidance.empty());
        CHECK(view.patches == 6);
        CHECK(view.patch_width == 8);
        std::vector<double> noise(48), latent_noise(48);
        draws.noise(number, noise);
        draws.latent_noise(number, latent_noise);
        const auto mean = part_of_array(images, "latents/mean", sample),
                   logvar = part_of_array(images, "latents/logvar", sample);
        for (int64_t i = 0; i < 48; ++i) {
            const auto at = size_t(i);
            const double x =
                0.3611 * (double(mean[at]) + std::exp(double(logvar[at]) / 2) * latent_noise[at] - 0.1159);
            const auto to = size_t(place_in_patches(2, 6, i / 24, i / 6 % 4, i % 6));
            const double t = view.times[0];
            CHECK(std::fabs(view.noisy[to] - ((1 - t) * x + t * noise[at])) < 1e-14);
            CHECK(std::fabs(view.target[to] - (noise[at] - x)) < 1e-14);
        }
    }
    // the same sample in the next epoch has other draws
    const ReadImage now(stream, 2);
    for (int64_t number = 5; number < 10; ++number)
        if (order(number) == order(2))
            CHECK(ReadImage(stream, number).view().times[0] != now.view().times[0]);
}

TEST_CASE("image stream: epochs take the crops in turn") {
    const EncodedFile file(paths::source() + "/tests/data/images/images.h5");
    ImageStream stream({&file}, {}, {});
    for (const int64_t epoch : {0, 1, 2, 3})
        for (const int64_t sample : {0, 1, 2}) {
            const ReadImage read(stream, 3 * epoch + sample);
            // given time and noise: x = noise - target
            const int64_t crop = epoch % 2;
            std::vector<double> x(16), logvar(16), latent_noise(16);
            file.read(EncodedFile::mean, sample, std::span(x), crop);
            file.read(EncodedFile::logvar, sample, std::span(logvar), crop);
            ImageDraws(0).latent_noise(3 * epoch + sample, latent_noise);
            LatentScale{0.3611, 0.1159}.encode(x, logvar, latent_noise);
            CHECK(read.view().times[0] == double(sample) / 8);
            const double noise = double(sample * 16) / 4 - 3;  // element 0, of both
            CHECK(std::fabs(read.view().target[0] - (noise - x[0])) < 1e-14);
        }
}

TEST_CASE("image stream: validation has eight times, in turn or all for each sample, or those of the file") {
    const TemporaryFolder folder;
    EncodedImages images = encoded_images(3, images_in_stream);
    const EncodedFile file(images.write(folder / "a.h5"));
    ImageStream turns({&file}, {}, {.times = ImageStream::Times::eighths});
    ImageStream all({&file}, {}, {.times = ImageStream::Times::all_eighths});
    CHECK(turns.first_epoch() == 3);
    CHECK(all.first_epoch() == 24);
    std::set<double> noises;
    for (int64_t row = 0; row < 24; ++row) {
        const ReadImage read(all, row);
        CHECK(sample_of_row(images, read.view().pooled) == row / 8);
        CHECK(read.view().times[0] == (double(row % 8) + 0.5) / 8);
        noises.insert(read.view().target[0]);
        const ReadImage in_turn(turns, row);
        CHECK(sample_of_row(images, in_turn.view().pooled) == row % 3);
        CHECK(in_turn.view().times[0] == (double(row % 8) + 0.5) / 8);
    }
    CHECK(noises.size() == 24);

    images.arrays["times"] = {{3}, {0, 0.125F, 0.875F}};
    const EncodedFile timed(images.write(folder / "b.h5"));
    for (const auto times : {ImageStream::Times::drawn, ImageStream::Times::eighths}) {
        ImageStream stream({&timed}, {}, {.times = times});
        for (const int64_t row : {0, 1, 2, 5})
            CHECK(ReadImage(stream, row).view().times[0] == images.arrays["times"].values[size_t(row % 3)]);
    }
    CHECK_THROWS_WITH(ImageStream({&timed}, {}, {.times = ImageStream::Times::all_eighths}),
                      Contains("validation.all_timesteps = true") && Contains("b.h5 has /times"));
    CHECK_THROWS_WITH(ImageStream({&file, &timed}, {}, {}),
                      Contains("b.h5 has /times, but ") && Contains("a.h5 has none"));
}

TEST_CASE("image stream: dropped prompts have the encodings of the empty prompt") {
    const TemporaryFolder folder;
    EncodedImages images = encoded_images(3, images_in_stream);
    const EncodedFile file(images.write(folder / "a.h5"));
    const std::vector<float>&t5 = images.arrays["t5_empty"].values,
          &clip = images.arrays["clip_empty"].values;
    for (const bool together : {false, true}) {
        ImageStream stream({&file}, {}, {.seed = 2, .drop_prompts = 0.5, .drop_together = together});
        const ImageDraws draws(2);
        int dropped = 0, different = 0;
        for (int64_t number = 0; number < 64; ++number) {
            const ReadImage read(stream, number);
            const auto [no_t5, no_clip] = draws.dropped(number, 0.5, together);
            CHECK(std::ranges::equal(read.view().text, no_t5 ? t5 : part_of_array(images, "t5", number % 3)));
            CHECK(std::ranges::equal(read.view().pooled,
                                     no_clip ? clip : part_of_array(images, "clip", number % 3)));
            dropped += no_t5, different += no_t5 != no_clip;
        }
        CHECK((dropped > 16 && dropped < 48));
        CHECK((different > 16) == !together);
    }
    images.arrays.erase("clip_empty");
    const EncodedFile without(images.write(folder / "b.h5"));
    CHECK_NOTHROW(ImageStream({&without}, {}, {}));
    CHECK_THROWS_WITH(
        ImageStream({&without}, {}, {.drop_prompts = 0.1}),
        Contains("training.classifier_free_guidance_prob = 0.1: ") && Contains("b.h5 has no /clip_empty"));
}

TEST_CASE("image stream: files are blended, and must be alike") {
    const TemporaryFolder folder;
    const EncodedImages a = encoded_images(4, images_in_stream), b = encoded_images(8, images_in_stream, 1);
    const EncodedFile first(a.write(folder / "a.h5")), second(b.write(folder / "b.h5"));
    ImageStream stream({&first, &second}, {}, {.seed = 1, .shuffle = true});
    CHECK(stream.first_epoch() == 12);
    std::set<std::pair<size_t, int64_t>> seen;
    for (int64_t number = 0; number < 12; ++number) {
        const ReadImage read(stream, number);
        SourceBlend blend = stream.blend();
        const SourceBlend::Place place = blend.place_of(number);
        CHECK(sample_of_row(place.source == 0 ? a : b, read.view().pooled) == place.sample);
        seen.insert({place.source, place.sample});
    }
    CHECK(seen.size() == 12);
    ImageStream weighted({&first, &second}, {3, 1}, {});
    CHECK(weighted.blend().part(0) == 0.75);

    EncodedShape longer = images_in_stream;
    longer.text_tokens = 4;
    const EncodedFile other(encoded_images(2, longer).write(folder / "c.h5"));
    CHECK_THROWS_WITH(ImageStream({&first, &other}, {}, {}),
                      Contains("c.h5 has latents [2, 4, 6], text [4, 5], pooled text [7], but ") &&
                          Contains("a.h5 has latents [2, 4, 6], text [3, 5]"));
    EncodedImages by_others = a;
    by_others.texts["text"] = "other words";
    const EncodedFile foreign(by_others.write(folder / "d.h5"));
    CHECK_THROWS_WITH(ImageStream({&first, &foreign}, {}, {}),
                      Contains("d.h5 was made with codec \"ae\", factor 8, scale 0.3611, shift 0.1159, text "
                               "\"other words\", but ") &&
                          Contains("text \"words of a test\"; files of one run have the same encoders"));
    const EncodedFile alone(encoded_images(1, images_in_stream).write(folder / "e.h5"));
    CHECK_NOTHROW(ImageStream({&alone}, {}, {}));
    CHECK_THROWS_WITH(ImageStream({&alone}, {}, {.subset = Subset::held_out}),
                      Contains("e.h5: has only one sample, so none can be held out"));
}

TEST_CASE("image stream: a loader has the samples of each rank, counts latents, and tells what is damaged") {
    const TemporaryFolder folder;
    EncodedImages images = encoded_images(7, images_in_stream);
    const EncodedFile file(images.write(folder / "a.h5"));
    const ImageStream stream({&file}, {}, {.seed = 4, .shuffle = true, .drop_prompts = 0.3});
    for (const int64_t rank : {0, 1}) {
        BatchLoader loader(std::make_unique<ImageReader>(stream),
                           {.global_batch = 4, .rank = rank, .ranks = 2, .first_sample = 5});
        for (int64_t step = 0; step < 5; ++step) {
            const StepBatch batch = loader.next().value();
            CHECK(batch.counted == 2 * 48);
            CHECK(batch.samples.text.sequences == 0);
            REQUIRE(batch.samples.images.samples == 2);
            for (const int64_t row : {0, 1}) {
                ImageStream alone = stream;
                const ReadImage read(alone, 5 + 4 * step + 2 * rank + row);
                const ImageSamples one = batch.samples.slice(row, 1).images;
                CHECK(std::ranges::equal(one.noisy, read.view().noisy));
                CHECK(std::ranges::equal(one.target, read.view().target));
                CHECK(std::ranges::equal(one.text, read.view().text));
                CHECK(std::ranges::equal(one.pooled, read.view().pooled));
                CHECK(one.times[0] == read.view().times[0]);
                CHECK(one.weights[0] == 1);
            }
        }
    }
    images.arrays["t5"].values[100] = std::numeric_limits<float>::quiet_NaN();
    const EncodedFile damaged(images.write(folder / "b.h5"));
    BatchLoader loader(std::make_unique<ImageReader>(ImageStream({&damaged}, {}, {})), {.global_batch = 4});
    CHECK_NOTHROW(loader.next());
    CHECK_THROWS_WITH(loader.next(), Contains("b.h5: /t5[6] is damaged: it contains NaN"));
}
