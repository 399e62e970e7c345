// SPDX-License-Identifier: Apache-2.0
// Files of encoded images: what h5py writes, and what is wrong with others.
#include "coeus/data/encoded_file.hpp"

#include "coeus/base/error.hpp"
#include "coeus/file/raw_file.hpp"
#include "support/catch.hpp"
#include "support/encoded_images.hpp"
#include "support/paths.hpp"
#include "support/support.hpp"

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <tuple>
#include <vector>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

constexpr EncodedShape small_images = {
    .channels = 2, .height = 4, .width = 6, .text_tokens = 3, .text_width = 5, .pooled_width = 7};

// Every message is a ConfigError.
std::string error_of_images(const std::filesystem::path& path) {
    try {
        const EncodedFile file(path);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

std::vector<double> read_part(const EncodedFile& file, EncodedFile::Array array, int64_t sample,
                              int64_t elements, int64_t crop = 0) {
    std::vector<double> part(static_cast<size_t>(elements));
    file.read(array, sample, std::span(part), crop);
    return part;
}

// first / 4, (first + 1) / 4, ..., with a sign, moved by `from`.
std::vector<double> quarters(int64_t first, int64_t count, double sign = 1, double from = 0) {
    std::vector<double> values;
    for (int64_t i = first; i < first + count; ++i) values.push_back(sign * double(i) / 4 + from);
    return values;
}

}  // namespace

TEST_CASE("encoded file: arrays in each type that h5py writes, with crops, captions and given draws") {
    const std::filesystem::path path = paths::source() + "/tests/data/images/images.h5";
    CHECK(is_encoded_file(path));
    const EncodedFile first(path);
    // the other ranks get the structure as a text
    const EncodedFile other(path, EncodedFile::Layout::of_text(first.layout().text()));
    for (const EncodedFile* file : {&first, &other}) {
        CHECK(file->samples() == 3);
        CHECK(file->crops() == 2);
        CHECK(file->shape() == EncodedShape{.channels = 2,
                                            .height = 2,
                                            .width = 4,
                                            .text_tokens = 2,
                                            .text_width = 3,
                                            .pooled_width = 5});
        CHECK(file->encoding() ==
              Encoding{
                  .codec = "ae", .factor = 8, .scale = 0.3611, .shift = 0.1159, .text = "words of a test"});
        CHECK(file->bytes_per_sample() == 2 * 16 * 2 + 6 * 2 + 5 * 4 + 8 + 16 * 4);
        CHECK(file->empty_prompt_missing().empty());
        for (const int64_t sample : {0, 2})
            for (const int64_t crop : {0, 1}) {
                const int64_t at = (2 * sample + crop) * 16;
                CHECK(read_part(*file, EncodedFile::mean, sample, 16, crop) == quarters(at, 16));
                CHECK(read_part(*file, EncodedFile::logvar, sample, 16, crop) == quarters(at, 16, -1));
            }
        CHECK(read_part(*file, EncodedFile::t5, 1, 6) == quarters(6, 6));
        CHECK(read_part(*file, EncodedFile::clip, 2, 5) == quarters(10, 5));
        CHECK(read_part(*file, EncodedFile::t5_empty, 0, 6) == quarters(0, 6, 1, -8));
        CHECK(read_part(*file, EncodedFile::clip_empty, 0, 5) == quarters(0, 5, 1, -8));
        CHECK(read_part(*file, EncodedFile::times, 2, 1) == std::vector<double>{0.25});
        CHECK(read_part(*file, EncodedFile::noise, 1, 16) == quarters(16, 16, 1, -3));
        std::vector<float> narrow(6);
        file->read(EncodedFile::t5, 1, std::span(narrow));
        CHECK(std::vector<double>(narrow.begin(), narrow.end()) == quarters(6, 6));
    }
    CHECK(first_captions(path, 9) ==
          std::vector<std::string>{"a red circle", "zwei Kreise – ein Quadrat", ""});
    CHECK(first_captions(path, 1).size() == 1);
}

TEST_CASE("encoded file: what is wrong with a file is named") {
    const TemporaryFolder folder;
    const std::string path = folder / "a.h5";
    const auto error_with = [&](const std::function<void(EncodedImages&)>& change) {
        EncodedImages images = encoded_images(3, small_images);
        change(images);
        images.write(path);
        return error_of_images(path);
    };
    const auto without = [&](const std::string& name) {
        return error_with([&](EncodedImages& images) { images.arrays.erase(name); });
    };
    const auto with = [&](const std::string& name, const Shape& shape) {
        return error_with([&](EncodedImages& images) { images.add(name, shape); });
    };
    CHECK(error_with([](EncodedImages&) {}).empty());
    CHECK_THAT(error_of_images(folder / "absent.h5"), Contains("absent.h5"));
    for (const std::string name : {"latents/mean", "t5", "clip"})
        CHECK_THAT(without(name), Contains("a.h5 has no dataset /" + name));
    CHECK(without("latents/logvar").empty());
    CHECK(without("t5_empty").empty());
    CHECK_THAT(EncodedFile(path).empty_prompt_missing(),
               Contains("a.h5 has no /t5_empty, the encoding of the empty prompt"));
    CHECK(without("clip_empty").empty());
    CHECK_THAT(EncodedFile(path).empty_prompt_missing(), Contains("has no /clip_empty"));

    CHECK_THAT(with("latents/mean", {3, 48}),
               Contains("/latents/mean is [3, 48], but must be [samples, channels, height, width]"));
    CHECK_THAT(with("latents/mean", {3, 2, 4, 5}),
               Contains("/latents/mean is [3, 2, 4, 5]: height and width must be even") &&
                   Contains("multiples of 16"));
    CHECK_THAT(with("latents/mean", {0, 2, 4, 6}), Contains("/latents/mean is [0, 2, 4, 6]: it is empty"));
    CHECK_THAT(with("latents/logvar", {3, 2, 6, 4}),
               Contains("/latents/logvar is [3, 2, 6, 4], but must be [3, 2, 4, 6] (as /latents/mean)"));
    CHECK_THAT(with("t5", {2, 3, 5}),
               Contains("/t5 is [2, 3, 5], but must be [samples, tokens, width] of 3"));
    CHECK_THAT(with("clip", {3, 1, 7}), Contains("/clip is [3, 1, 7], but must be [samples, width] of 3"));
    CHECK_THAT(with("t5_empty", {1, 3, 5}),
               Contains("/t5_empty is [1, 3, 5], but must be [3, 5] (a sample of /t5)"));
    CHECK_THAT(with("clip_empty", {8}), Contains("/clip_empty is [8], but must be [7] (a sample of /clip)"));
    CHECK_THAT(with("noise", {3, 2, 4, 6}),
               Contains("has /noise but no /times; give the times of this noise"));
    CHECK_THAT(with("times", {4}), Contains("/times is [4], but must be [3] (one time for each sample)"));
    for (const float time : {-0.25F, 1.5F, std::numeric_limits<float>::quiet_NaN()})
        CHECK_THAT(error_with([&](EncodedImages& images) {
                       images.arrays["times"] = {{3}, {0, time, 1}};
                   }),
                   Contains("/times[1] is ") && Contains("must be from 0 (image) to 1 (noise)"));
    CHECK_THAT(with("captions", {3}),
               Contains("/captions is [3] float32, but must be one text for each of 3"));

    for (const std::string name : {"codec", "text"})
        CHECK_THAT(error_with([&](EncodedImages& images) { images.texts.erase(name); }),
                   Contains("the attribute " + name + " is missing"));
    for (const std::string name : {"scale", "shift"})
        CHECK_THAT(error_with([&](EncodedImages& images) { images.numbers.erase(name); }),
                   Contains("the attribute " + name + " is missing; for Flux's encoders it is 0."));
    CHECK_THAT(error_with([](EncodedImages& images) { images.factor = 0; }),
               Contains("the attribute factor is missing; for Flux's encoders it is 8"));
    CHECK_THAT(error_with([](EncodedImages& images) { images.factor = -8; }),
               Contains("the attribute factor is -8, but must be the pixels"));
    CHECK_THAT(error_with([](EncodedImages& images) { images.numbers["scale"] = 0; }),
               Contains("the attributes scale and shift are 0 and 0.1159"));
    CHECK_THAT(error_with([](EncodedImages& images) { images.texts["codec"] = "jpeg"; }),
               Contains("the attribute codec is \"jpeg\", but must be \"ae\" or \"pixels\""));
    CHECK_THAT(error_with([](EncodedImages& images) { images.texts["format"] = "else"; }),
               Contains("is not a file of encoded images: its attribute format must be \"encoded images\"") &&
                   Contains("examples/flux/encode.py"));
    CHECK_FALSE(is_encoded_file(path));
    write_file(folder / "text.h5", "some text");
    CHECK_FALSE(is_encoded_file(folder / "text.h5"));
}

TEST_CASE("encoded file: types are checked") {
    const TemporaryFolder folder;
    const std::string path = folder / "a.h5";
    const auto error_with_noise = [&](hdf5::Type type, const std::string& dtype) {
        EncodedImages images = encoded_images(1, small_images);
        images.arrays["times"] = {{1}, {0.5F}};
        images.write(path);
        auto file = hdf5::File::open_for_update(path);
        hdf5::Dataset noise = file.create_dataset("noise", type, {1, 2, 4, 6});
        std::vector<std::byte> zeros(48 * 8);
        noise.write_elements(zeros.data(), type, 0, 48);
        if (!dtype.empty()) noise.set_attribute("dtype", dtype);
        file.close();
        return error_of_images(path);
    };
    for (const hdf5::Type type : {hdf5::Type::f64, hdf5::Type::f32, hdf5::Type::f16, hdf5::Type::bf16})
        CHECK(error_with_noise(type, "").empty());
    CHECK(error_with_noise(hdf5::Type::u16, "bfloat16").empty());
    CHECK_THAT(error_with_noise(hdf5::Type::u16, ""),
               Contains("/noise has elements of type uint16 without the attribute dtype = \"bfloat16\"") &&
                   Contains("must have float32, float16 or bfloat16, or float64"));
    CHECK_THAT(error_with_noise(hdf5::Type::u16, "float16"), Contains("without the attribute dtype"));
    CHECK_THAT(error_with_noise(hdf5::Type::i32, ""), Contains("/noise has elements of type int32, but"));
    // what encoders write has no float64
    EncodedImages images = encoded_images(1, small_images);
    images.arrays.erase("t5");
    images.write(path);
    auto file = hdf5::File::open_for_update(path);
    file.create_dataset("t5", hdf5::Type::f64, {1, 3, 5});
    file.close();
    CHECK_THAT(error_of_images(path), Contains("/t5 has elements of type float64, but must have float32, "
                                               "float16 or bfloat16 (from h5py"));
}

TEST_CASE("encoded file: a truncated file, and one that is shorter on another rank") {
    const TemporaryFolder folder;
    const std::string path = encoded_images(40, small_images).write(folder / "a.h5");
    const EncodedFile::Layout layout = EncodedFile(path).layout();
    std::filesystem::resize_file(path, std::filesystem::file_size(path) - 4096);
    CHECK_THAT(error_of_images(path), Contains("is truncated"));
    CHECK_THROWS_WITH(EncodedFile(path, layout), Contains("fewer than on rank 0"));
}

TEST_CASE("encoded file: a number that is not finite is named when it is read") {
    const TemporaryFolder folder;
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()})
        for (const auto& [name, array, each] : {std::tuple("latents/mean", EncodedFile::mean, 48),
                                                {"latents/logvar", EncodedFile::logvar, 48},
                                                {"t5", EncodedFile::t5, 15},
                                                {"clip", EncodedFile::clip, 7}}) {
            CAPTURE(name, bad);
            EncodedImages images = encoded_images(3, small_images);
            images.arrays[name].values[size_t(2 * each - 1)] = bad;
            const EncodedFile file(images.write(folder / "a.h5"));
            CHECK_NOTHROW(read_part(file, array, 0, each));
            CHECK_NOTHROW(read_part(file, array, 2, each));
            CHECK_THROWS_WITH(read_part(file, array, 1, each),
                              Contains(std::string("a.h5: /") + name + "[1] is damaged: it contains ") &&
                                  Contains(std::isnan(bad) ? "NaN" : "an infinite number"));
        }
}
