// SPDX-License-Identifier: Apache-2.0
// Files of encoded images for tests.
#pragma once

#include "coeus/base/random.hpp"
#include "coeus/data/encoded_file.hpp"
#include "coeus/hdf5/hdf5.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace coeus::test {

/// What a file consists of: tests change it before they write it.
struct EncodedImages {
    struct Array {
        Shape shape;
        std::vector<float> values;
    };
    std::map<std::string, std::string> texts = {
        {"format", "encoded images"}, {"codec", "ae"}, {"text", "words of a test"}};
    std::map<std::string, double> numbers = {{"scale", 0.3611}, {"shift", 0.1159}};
    int64_t factor = 8;
    std::map<std::string, Array> arrays;

    /// Adds an array of normal numbers, which depend on its name and the seed.
    void add(const std::string& name, const Shape& shape, uint64_t seed = 0) {
        Array& array = arrays[name];
        array.shape = shape;
        array.values.resize(size_t(shape.count()));
        const RandomStream stream(seed, name);
        for (size_t i = 0; i < array.values.size(); ++i)
            array.values[i] = float(normal_quantile(stream.uniform(i)));
    }

    std::filesystem::path write(const std::filesystem::path& path) const {
        auto file = hdf5::File::create(path.string());
        for (const auto& [name, text] : texts) file.set_attribute(name, text);
        for (const auto& [name, number] : numbers) file.set_attribute(name, number);
        if (factor != 0) file.set_attribute("factor", factor);
        for (const auto& [name, array] : arrays)
            file.create_dataset(name, hdf5::Type::f32, array.shape)
                .write(std::span<const float>(array.values));
        file.close();
        return path;
    }
};

/// Everything but times and noise.
inline EncodedImages encoded_images(int64_t samples, const EncodedShape& shape, uint64_t seed = 0) {
    EncodedImages images;
    const Shape latents = {samples, shape.channels, shape.height, shape.width};
    images.add("latents/mean", latents, seed);
    images.add("latents/logvar", latents, seed);
    images.add("t5", {samples, shape.text_tokens, shape.text_width}, seed);
    images.add("clip", {samples, shape.pooled_width}, seed);
    images.add("t5_empty", {shape.text_tokens, shape.text_width}, seed);
    images.add("clip_empty", {shape.pooled_width}, seed);
    return images;
}

}  // namespace coeus::test
