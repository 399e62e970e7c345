// SPDX-License-Identifier: Apache-2.0
// coeus info for a file of encoded images: extents, types, encoders, captions. --verify reads every element.
#include "coeus/data/encoded_file.hpp"

#include "coeus/base/counted.hpp"
#include "coeus/base/text.hpp"
#include "coeus/info/kinds.hpp"

#include <span>
#include <string>
#include <vector>

namespace coeus::info {

namespace {

constexpr int64_t shown_captions = 8;

/// Reads everything, which throws if a number is not finite.
void verify_encodings(const EncodedFile& file) {
    ProgressBar bar("verifying", file.samples(), false);
    std::vector<double> part;
    const auto read = [&](EncodedFile::Array array, int64_t sample, int64_t elements) {
        if (!file.has(array)) return;
        part.resize(static_cast<size_t>(elements));
        const int64_t crops = array <= EncodedFile::logvar ? file.crops() : 1;
        for (int64_t crop = 0; crop < crops; ++crop) file.read(array, sample, std::span(part), crop);
    };
    const EncodedShape& shape = file.shape();
    const int64_t text = shape.text_tokens * shape.text_width;
    read(EncodedFile::t5_empty, 0, text);
    read(EncodedFile::clip_empty, 0, shape.pooled_width);
    for (int64_t sample = 0; sample < file.samples(); ++sample) {
        for (const auto latents : {EncodedFile::mean, EncodedFile::logvar, EncodedFile::noise})
            read(latents, sample, shape.latents());
        read(EncodedFile::t5, sample, text);
        read(EncodedFile::clip, sample, shape.pooled_width);
        bar.update(sample);
    }
    entry("verified", "all numbers are finite");
}

std::string type_in(const EncodedFile& file, EncodedFile::Array array) {
    return name_of(file.place(array).type);
}

}  // namespace

void show_encoded_file(const std::string& path, const Options& options) {
    const EncodedFile file(path);
    const EncodedShape& shape = file.shape();
    const Encoding& encoding = file.encoding();
    print("{}: encoded images, {}\n", path, file_size(path));
    entry("samples", with_commas(file.samples()) +
                         (file.crops() == 1 ? "" : fmt::format(", {} crops each", file.crops())));
    entry("images",
          fmt::format("{} x {} pixels", encoding.factor * shape.width, encoding.factor * shape.height));
    entry("latents", fmt::format("{} x {} x {} ({}), {}", shape.channels, shape.height, shape.width,
                                 type_in(file, EncodedFile::mean),
                                 file.has(EncodedFile::logvar) ? "drawn around their mean" : "as they are"));
    entry("codec", fmt::format("{}, scale {}, shift {}", encoding.codec, encoding.scale, encoding.shift));
    entry("text",
          fmt::format("{} x {} ({}), pooled {} ({})", counted(shape.text_tokens, "token"), shape.text_width,
                      type_in(file, EncodedFile::t5), shape.pooled_width, type_in(file, EncodedFile::clip)));
    entry("encoders", encoding.text);
    entry("empty prompt", file.empty_prompt_missing().empty() ? "yes" : "no, so no prompt can be dropped");
    entry("times", file.has(EncodedFile::times) ? "given" : "drawn");
    entry("noise", file.has(EncodedFile::noise) ? "given" : "drawn");
    entry("a sample", bytes_text(double(file.bytes_per_sample())));
    const std::vector<std::string> captions = first_captions(path, shown_captions);
    for (size_t i = 0; i < captions.size(); ++i)
        entry(fmt::format("caption {}", i), captions[i].empty() ? "(empty)" : captions[i]);
    if (options.verify) verify_encodings(file);
}

}  // namespace coeus::info
