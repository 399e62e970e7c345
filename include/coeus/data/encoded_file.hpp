// SPDX-License-Identifier: Apache-2.0
// Encoded images: what frozen encoders made of images and their captions, once, before training. An HDF5 file
// of contiguous arrays, which other programs may write (doc/images.md has ten lines of h5py). With n samples:
//   /latents/mean, /latents/logvar   [n, C, h, w] or [n, crops, C, h, w]; without logvar, latents are the
//   mean /t5, /clip                       [n, T, c], [n, v] /t5_empty, /clip_empty           [T, c], [v];
//   optional: the encodings of the empty prompt /times, /noise                   [n], [n, C, h, w]; optional:
//   draws that are given, not made /captions                        [n] texts; optional
// Elements are float32, float16, bfloat16, or uint16 with the attribute dtype = "bfloat16"; times and noise
// may be float64. The attributes of the root are those of Encoding, and format = "encoded images".
// A run reads parts when it needs them, patiently (base/patient_io.hpp).
#pragma once

#include "coeus/base/types.hpp"
#include "coeus/file/raw_file.hpp"

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace coeus {

/// The extents of a sample: latents [channels, height, width], text [text_tokens, text_width] and pooled text
/// [pooled_width].
struct EncodedShape {
    int64_t channels = 0, height = 0, width = 0;
    int64_t text_tokens = 0, text_width = 0, pooled_width = 0;

    int64_t latents() const { return channels * height * width; }
    /// Patches of 2 by 2, and the elements of one.
    int64_t patches() const { return height / 2 * (width / 2); }
    int64_t patch_width() const { return 4 * channels; }
    bool operator==(const EncodedShape&) const = default;
};

/// What made the encodings. Samples of one run have the same.
struct Encoding {
    std::string codec;   ///< "ae": an autoencoder; "pixels": pixels, moved into channels
    int64_t factor = 0;  ///< pixels of an image for one element of its latents, along an edge
    double scale = 1;    ///< x = scale (mean + e^(logvar / 2) noise - shift)
    double shift = 0;
    std::string
        text;  ///< names of both encoders, "google/t5-v1_1-xxl, openai/clip-vit-large-patch14"; "words"
    bool operator==(const Encoding&) const = default;
};

/// True if the file is an HDF5 file that says that it has encoded images.
bool is_encoded_file(const std::filesystem::path& file);

class EncodedFile {
public:
    /// Place of an array in the file; count 0: the array does not exist.
    struct Place {
        int64_t offset = 0, count = 0;
        Dtype type = Dtype::f32;
    };
    enum Array : uint8_t { mean, logvar, t5, clip, t5_empty, clip_empty, times, noise, arrays };
    /// The structure of a file, which one rank reads and broadcasts.
    struct Layout {
        int64_t samples = 0, crops = 1;
        EncodedShape shape;
        Encoding encoding;
        Place places[arrays];

        std::string text() const;
        static Layout of_text(const std::string& text);
    };

    /// ConfigError: the file does not exist, is truncated, is not of this format; an array is absent, empty,
    /// not contiguous, or has other extents or another type than those above; an edge of the latents is odd;
    /// there is noise without times; a time is not in [0, 1].
    explicit EncodedFile(const std::filesystem::path& path);
    /// Opens a file whose structure was checked on another rank. ConfigError: the file does not exist, or is
    /// shorter than on that rank.
    EncodedFile(const std::filesystem::path& path, Layout layout);

    const std::string& path() const { return file_.path(); }
    const Layout& layout() const { return layout_; }
    const EncodedShape& shape() const { return layout_.shape; }
    const Encoding& encoding() const { return layout_.encoding; }
    int64_t samples() const { return layout_.samples; }
    /// Versions of each sample's latents, such as crops of its image.
    int64_t crops() const { return layout_.crops; }
    bool has(Array array) const { return layout_.places[array].count > 0; }
    const Place& place(Array array) const { return layout_.places[array]; }
    /// Bytes that a run reads of a sample.
    int64_t bytes_per_sample() const;
    /// The error for a run that needs the encodings of the empty prompt, or "" if they are there.
    std::string empty_prompt_missing() const;

    /// Reads the part of an array that belongs to a sample (of latents: to one of its crops); the only part
    /// of those of the empty prompt. ConfigError with array and sample if an element is infinite or NaN.
    /// Threads may read at the same time.
    void read(Array array, int64_t sample, std::span<double> out, int64_t crop = 0) const;
    void read(Array array, int64_t sample, std::span<float> out, int64_t crop = 0) const;

    /// "/latents/mean"
    static const char* name_of(Array array);

private:
    template <class T>
    void read_as(Array array, int64_t sample, std::span<T> out, int64_t crop) const;
    void require_times() const;
    Layout layout_;
    RawFile file_;
};

/// Captions of the first samples, at most `most`; none if the file has no captions. Calls HDF5, so it is for
/// one thread.
std::vector<std::string> first_captions(const std::filesystem::path& file, int64_t most);

}  // namespace coeus
