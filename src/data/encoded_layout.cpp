// SPDX-License-Identifier: Apache-2.0
#include "encoded_layout.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "coeus/file/raw_file.hpp"
#include "coeus/hdf5/hdf5.hpp"

#include <cmath>
#include <optional>
#include <string>
#include <vector>

namespace coeus {

namespace {

using Extents = std::vector<int64_t>;

std::string text_of(const Extents& extents) {
    std::vector<std::string> numbers;
    for (const int64_t extent : extents) numbers.push_back(std::to_string(extent));
    return "[" + join(numbers, ", ") + "]";
}

// Reads the structure of one file.
class Structure {
public:
    explicit Structure(const std::string& path)
        : path_(path), raw_(RawFile::open(path)), file_(hdf5::File::open(path)) {}

    EncodedFile::Layout read() {
        layout_.encoding = encoding();
        const Extents mean = extents_of(EncodedFile::mean);
        if (mean.size() != 4 && mean.size() != 5)
            throw ConfigError(
                "{}: /latents/mean is {}, but must be [samples, channels, height, width], or with crops "
                "[samples, crops, channels, height, width]",
                path_, text_of(mean));
        const size_t first = mean.size() - 3;
        layout_.samples = mean[0];
        layout_.crops = mean.size() == 5 ? mean[1] : 1;
        EncodedShape& shape = layout_.shape;
        shape.channels = mean[first], shape.height = mean[first + 1], shape.width = mean[first + 2];
        if (shape.height % 2 != 0 || shape.width % 2 != 0)
            throw ConfigError(
                "{}: /latents/mean is {}: height and width must be even, since a patch has 2 by 2 elements; "
                "encode images whose edges are multiples of {}",
                path_, text_of(mean), 2 * layout_.encoding.factor);
        add(EncodedFile::mean, mean, "latents");
        add_if_there(EncodedFile::logvar, mean, "as /latents/mean");
        add_text();
        const Extents latents = {layout_.samples, shape.channels, shape.height, shape.width};
        add_if_there(EncodedFile::times, {layout_.samples}, "one time for each sample");
        add_if_there(EncodedFile::noise, latents, "noise for each sample, without crops");
        if (layout_.places[EncodedFile::noise].count > 0 && layout_.places[EncodedFile::times].count == 0)
            throw ConfigError("{}: has /noise but no /times; give the times of this noise too, or neither",
                              path_);
        check_captions();
        return layout_;
    }

private:
    Encoding encoding() const {
        if (!file_.has_attribute("format") || file_.string_attribute("format") != encoded_format)
            throw ConfigError(
                "{}: is not a file of encoded images: its attribute format must be \"{}\"; "
                "examples/flux/encode.py makes such files, and doc/images.md describes them",
                path_, encoded_format);
        const auto require_there = [&](const char* name, const char* example) {
            if (!file_.has_attribute(name))
                throw ConfigError("{}: the attribute {} is missing; for Flux's encoders it is {}", path_,
                                  name, example);
        };
        require_there("codec", "\"ae\"");
        require_there("factor", "8");
        require_there("scale", "0.3611");
        require_there("shift", "0.1159");
        require_there("text", "\"google/t5-v1_1-xxl, openai/clip-vit-large-patch14\"");
        Encoding encoding = {.codec = file_.string_attribute("codec"),
                             .factor = file_.int_attribute("factor"),
                             .scale = file_.real_attribute("scale"),
                             .shift = file_.real_attribute("shift"),
                             .text = file_.string_attribute("text")};
        if (encoding.codec != "ae" && encoding.codec != "pixels")
            throw ConfigError("{}: the attribute codec is \"{}\", but must be \"ae\" or \"pixels\"", path_,
                              encoding.codec);
        if (encoding.factor < 1 || encoding.factor > 1 << 20)
            throw ConfigError(
                "{}: the attribute factor is {}, but must be the pixels for one element of latents along an "
                "edge, such as 8",
                path_, encoding.factor);
        if (!std::isfinite(encoding.scale) || encoding.scale <= 0 || !std::isfinite(encoding.shift))
            throw ConfigError(
                "{}: the attributes scale and shift are {} and {}, but must be a number above 0 and a number",
                path_, encoding.scale, encoding.shift);
        return encoding;
    }

    void add_text() {
        EncodedShape& shape = layout_.shape;
        const Extents t5 = extents_of(EncodedFile::t5), clip = extents_of(EncodedFile::clip);
        if (t5.size() != 3 || t5[0] != layout_.samples)
            throw ConfigError("{}: /t5 is {}, but must be [samples, tokens, width] of {} samples", path_,
                              text_of(t5), with_commas(layout_.samples));
        if (clip.size() != 2 || clip[0] != layout_.samples)
            throw ConfigError("{}: /clip is {}, but must be [samples, width] of {} samples", path_,
                              text_of(clip), with_commas(layout_.samples));
        shape.text_tokens = t5[1], shape.text_width = t5[2], shape.pooled_width = clip[1];
        add(EncodedFile::t5, t5, "T5's output");
        add(EncodedFile::clip, clip, "CLIP's output");
        add_if_there(EncodedFile::t5_empty, {shape.text_tokens, shape.text_width}, "a sample of /t5");
        add_if_there(EncodedFile::clip_empty, {shape.pooled_width}, "a sample of /clip");
    }

    void check_captions() const {
        if (!file_.has("captions")) return;
        const hdf5::Dataset captions = file_.dataset("captions");
        if (!captions.has_texts() || captions.extents() != Extents{layout_.samples})
            throw ConfigError("{}: /captions is {} {}, but must be one text for each of {} samples", path_,
                              text_of(captions.extents()),
                              captions.has_texts() ? "texts" : hdf5::name_of(captions.type()),
                              with_commas(layout_.samples));
    }

    Extents extents_of(EncodedFile::Array array) const {
        return file_.dataset(EncodedFile::name_of(array) + 1).extents();
    }

    void add_if_there(EncodedFile::Array array, const Extents& extents, const char* meaning) {
        const char* name = EncodedFile::name_of(array) + 1;
        if (file_.has(name)) add(array, extents, meaning);
    }

    // The place of an array with these extents, whose elements have one of the allowed types.
    void add(EncodedFile::Array array, const Extents& extents, const char* meaning) {
        const char* name = EncodedFile::name_of(array);
        const hdf5::Dataset found = file_.dataset(name + 1);
        if (found.extents() != extents)
            throw ConfigError("{}: {} is {}, but must be {} ({})", path_, name, text_of(found.extents()),
                              text_of(extents), meaning);
        EncodedFile::Place& place = layout_.places[array];
        place.count = found.shape().count();
        if (place.count == 0) throw ConfigError("{}: {} is {}: it is empty", path_, name, text_of(extents));
        const bool may_be_double = array == EncodedFile::times || array == EncodedFile::noise;
        const auto type = type_of(found, may_be_double);
        if (!type)
            throw ConfigError(
                "{}: {} has elements of type {}{}, but must have float32, float16 or bfloat16{} (from h5py: "
                "uint16 with the attribute dtype = \"bfloat16\")",
                path_, name, hdf5::name_of(found.type()),
                found.type() == hdf5::Type::u16 ? " without the attribute dtype = \"bfloat16\"" : "",
                may_be_double ? ", or float64" : "");
        place.type = *type;
        const auto offset = found.offset();
        if (!offset)
            throw ConfigError(
                "{}: {} must be contiguous, without chunks or compression; with h5py: "
                "f.create_dataset(\"{}\", data=...) without further options",
                path_, name, name + 1);
        place.offset = *offset;
        if (place.offset > raw_.size() || place.count * size_of(place.type) > raw_.size() - place.offset)
            throw ConfigError("{} is truncated: {} extends past the end of the file", path_, name);
    }

    static std::optional<Dtype> type_of(const hdf5::Dataset& array, bool may_be_double) {
        switch (array.type()) {
            case hdf5::Type::f32: return Dtype::f32;
            case hdf5::Type::f16: return Dtype::f16;
            case hdf5::Type::bf16: return Dtype::bf16;
            case hdf5::Type::f64: return may_be_double ? std::optional(Dtype::f64) : std::nullopt;
            case hdf5::Type::u16:
                return array.has_attribute("dtype") && array.string_attribute("dtype") == "bfloat16"
                           ? std::optional(Dtype::bf16)
                           : std::nullopt;
            default: return std::nullopt;
        }
    }

    std::string path_;
    RawFile raw_;
    hdf5::File file_;
    EncodedFile::Layout layout_;
};

}  // namespace

EncodedFile::Layout encoded_layout(const std::filesystem::path& path) {
    return Structure(path.string()).read();
}

}  // namespace coeus
