// SPDX-License-Identifier: Apache-2.0
// golden/flux: what the loader makes of encoded images, against torchtitan. A file with given noise and times
// gives what its step hands to the model; an autoencoder's mean and variance give its latents.
#include "coeus/data/encoded_file.hpp"
#include "coeus/data/image_draws.hpp"
#include "coeus/data/image_stream.hpp"
#include "coeus/file/json.hpp"
#include "coeus/file/safetensors.hpp"
#include "support/catch.hpp"
#include "support/encoded_images.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

using namespace coeus;
using namespace coeus::test;

namespace {

double farthest(std::span<const double> ours, const std::vector<double>& theirs) {
    REQUIRE(ours.size() == theirs.size());
    double worst = 0;
    for (size_t i = 0; i < theirs.size(); ++i) worst = worse_of(worst, std::fabs(ours[i] - theirs[i]));
    return worst;
}

// Latents [samples, C, h, w] mixed with noise, as patches.
struct Mixed {
    Mixed(const Shape& shape, const std::vector<double>& latents, const std::vector<double>& noise,
          const std::vector<double>& times)
        : noisy(latents.size()), target(latents.size()) {
        const auto each = size_t(shape[1] * shape[2] * shape[3]);
        for (size_t b = 0; b < times.size(); ++b) {
            const auto part = [&](auto& all) { return std::span(all).subspan(b * each, each); };
            mix_patches(shape[1], shape[2], shape[3], part(latents), part(noise), times[b], part(noisy),
                        part(target));
        }
    }
    std::vector<double> noisy, target;
};

}  // namespace

TEST_CASE("flux data: patches, mixed latents and targets are those of torchtitan") {
    const auto folder = golden("flux");
    if (folder.empty()) return;
    const Safetensors parts = Safetensors::open(folder / "parts/parts.safetensors");
    const std::vector<double> latents = parts.read_all<double>("patchify.latents");
    const Shape shape = parts.entry("patchify.latents").shape;
    const auto zeros = [](int64_t count) { return std::vector<double>(static_cast<size_t>(count), 0); };
    CHECK(Mixed(shape, latents, zeros(shape.count()), zeros(shape[0])).noisy ==
          parts.read_all<double>("patchify.packed"));

    const auto flow = [&](const char* name) { return parts.read_all<double>(std::string("flow.") + name); };
    const Shape of_flow = parts.entry("flow.x").shape;
    const Mixed mixed(of_flow, flow("x"), flow("noise"), flow("t"));
    // theirs are latents, which time 0 leaves as they are
    const auto packed = [&](const char* name) {
        return Mixed(of_flow, flow(name), zeros(of_flow.count()), zeros(of_flow[0])).noisy;
    };
    CHECK(farthest(mixed.noisy, packed("noisy")) < 1e-15);
    CHECK(farthest(mixed.target, packed("target")) < 1e-15);
}

TEST_CASE("flux data: latents lie around an autoencoder's mean as torchtitan draws them") {
    const auto folder = golden("flux");
    if (folder.empty()) return;
    const Safetensors values = Safetensors::open(folder / "autoencoder/values.safetensors");
    const JsonDocument config = JsonDocument::read(folder / "config.json");
    const JsonView autoencoder = config.root()["autoencoder"];
    std::vector<double> latents = values.read_all<double>("mean");
    LatentScale{autoencoder.number("scale_factor"), autoencoder.number("shift_factor")}.encode(
        latents, values.read_all<double>("logvar"), values.read_all<double>("noise"));
    CHECK(farthest(latents, values.read_all<double>("encoded")) < 1e-15);
}

TEST_CASE("flux data: a file of encodings with noise and times gives the batch of torchtitan's step") {
    const auto folder = golden("flux");
    if (folder.empty()) return;
    const Safetensors batch = Safetensors::open(folder / "transformer/batch.safetensors");
    EncodedImages images;
    images.numbers = {{"scale", 1}, {"shift", 0}};
    for (const auto& [name, array] : {std::pair("latents/mean", "x"),
                                      {"noise", "noise"},
                                      {"times", "timesteps"},
                                      {"t5", "t5"},
                                      {"clip", "clip"}}) {
        const std::vector<double> exact = batch.read_all<double>(array);
        images.arrays[name] = {batch.entry(array).shape, {exact.begin(), exact.end()}};
    }
    const TemporaryFolder written;
    const EncodedFile file(images.write(written / "batch.h5"));
    ImageReader reader(ImageStream({&file}, {}, {}));
    reader.reserve(file.samples());
    const ReadSamples read = reader.read(0, file.samples(), 0);
    const ImageSamples& ours = read.samples.images;
    const auto theirs = [&](const char* name) {
        return batch.read_all<double>(std::string("model.") + name);
    };
    CHECK(farthest(ours.noisy, theirs("img")) < 1e-15);
    CHECK(farthest(ours.target, theirs("target")) < 1e-15);
    CHECK(std::ranges::equal(ours.text, theirs("txt")));
    CHECK(std::ranges::equal(ours.pooled, theirs("y")));
    CHECK(std::ranges::equal(ours.times, theirs("timesteps")));
    CHECK(read.counted == int64_t(theirs("target").size()));
}
