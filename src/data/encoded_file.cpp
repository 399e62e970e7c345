// SPDX-License-Identifier: Apache-2.0
#include "coeus/data/encoded_file.hpp"

#include "coeus/base/error.hpp"
#include "coeus/data/token_file.hpp"
#include "coeus/hdf5/hdf5.hpp"
#include "elements.hpp"
#include "encoded_layout.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <sstream>
#include <type_traits>
#include <utility>

namespace coeus {

namespace {

// Elements of one type, as numbers of another.
template <class From, class To>
void convert(const std::byte* from, std::span<To> to) {
    for (size_t i = 0; i < to.size(); ++i) {
        const auto element = load<From>(from + i * sizeof(From));
        if constexpr (std::is_same_v<From, f16>)
            to[i] = To(to_float(element));
        else if constexpr (std::is_same_v<From, bf16>)
            to[i] = To(float(element));
        else
            to[i] = To(element);
    }
}

template <class To>
void convert(Dtype type, const std::byte* from, std::span<To> to) {
    switch (type) {
        case Dtype::f64: return convert<double>(from, to);
        case Dtype::f16: return convert<f16>(from, to);
        case Dtype::bf16: return convert<bf16>(from, to);
        default: return convert<float>(from, to);
    }
}

int64_t bytes_of(const EncodedFile::Place& place) {
    return place.count * size_of(place.type);
}

// The bits of a number, as a number.
std::string bits_of(double value) {
    return std::to_string(std::bit_cast<uint64_t>(value));
}

}  // namespace

bool is_encoded_file(const std::filesystem::path& file) {
    if (!is_token_file(file)) return false;  // no HDF5 file at all
    const hdf5::File opened = hdf5::File::open(file.string());
    return opened.has("latents") && opened.has_attribute("format") &&
           opened.string_attribute("format") == encoded_format;
}

const char* EncodedFile::name_of(Array array) {
    constexpr const char* names[arrays] = {"/latents/mean", "/latents/logvar", "/t5",    "/clip",
                                           "/t5_empty",     "/clip_empty",     "/times", "/noise"};
    return names[array];
}

std::string EncodedFile::Layout::text() const {
    std::string text = fmt::format("{} {}", samples, crops);
    for (const int64_t extent : {shape.channels, shape.height, shape.width, shape.text_tokens,
                                 shape.text_width, shape.pooled_width, encoding.factor})
        text += fmt::format(" {}", extent);
    for (const Place& place : places)
        text += fmt::format(" {} {} {}", place.offset, place.count, int(place.type));
    text += fmt::format(" {} {}", bits_of(encoding.scale), bits_of(encoding.shift));
    return text + "\n" + encoding.codec + "\n" + encoding.text;
}

EncodedFile::Layout EncodedFile::Layout::of_text(const std::string& text) {
    std::istringstream in(text);
    Layout layout;
    EncodedShape& shape = layout.shape;
    in >> layout.samples >> layout.crops;
    for (int64_t* extent : {&shape.channels, &shape.height, &shape.width, &shape.text_tokens,
                            &shape.text_width, &shape.pooled_width, &layout.encoding.factor})
        in >> *extent;
    for (Place& place : layout.places) {
        int type = 0;
        in >> place.offset >> place.count >> type;
        place.type = Dtype(type);
    }
    for (double* number : {&layout.encoding.scale, &layout.encoding.shift}) {
        uint64_t bits = 0;
        in >> bits;
        *number = std::bit_cast<double>(bits);
    }
    in.ignore();  // the line end
    std::getline(in, layout.encoding.codec);
    std::getline(in, layout.encoding.text, '\0');
    return layout;
}

EncodedFile::EncodedFile(const std::filesystem::path& path) : EncodedFile(path, encoded_layout(path)) {
    require_times();
}

EncodedFile::EncodedFile(const std::filesystem::path& path, Layout layout)
    : layout_(std::move(layout)), file_(RawFile::open(path.string())) {
    for (const Place& place : layout_.places)
        if (place.offset + bytes_of(place) > file_.size())
            throw ConfigError("{} has {} bytes on this rank, fewer than on rank 0", file_.path(),
                              file_.size());
}

void EncodedFile::require_times() const {
    if (!has(times)) return;
    constexpr int64_t together = 1 << 12;
    std::vector<double> some;
    const Place& place = layout_.places[times];
    std::vector<std::byte> raw(size_t(together * size_of(place.type)));
    for (int64_t first = 0; first < samples(); first += together) {
        some.resize(size_t(std::min(together, samples() - first)));
        file_.read_small(raw.data(), int64_t(some.size()) * size_of(place.type),
                         place.offset + first * size_of(place.type));
        convert(place.type, raw.data(), std::span(some));
        for (size_t i = 0; i < some.size(); ++i)
            if (!(some[i] >= 0 && some[i] <= 1))
                throw ConfigError("{}: /times[{}] is {}, but a time must be from 0 (image) to 1 (noise)",
                                  path(), first + int64_t(i), some[i]);
    }
}

int64_t EncodedFile::bytes_per_sample() const {
    int64_t bytes = 0;
    for (const Array array : {mean, logvar, t5, clip, times, noise})
        bytes += bytes_of(place(array)) / samples() / (array <= logvar ? crops() : 1);
    return bytes;
}

std::string EncodedFile::empty_prompt_missing() const {
    for (const Array array : {t5_empty, clip_empty})
        if (!has(array))
            return fmt::format(
                "{} has no {}, the encoding of the empty prompt; encode the prompt \"\" with the same "
                "encoders and add it",
                path(), name_of(array));
    return "";
}

template <class T>
void EncodedFile::read_as(Array array, int64_t sample, std::span<T> out, int64_t crop) const {
    const Place& place = layout_.places[array];
    const bool is_empty_prompt = array == t5_empty || array == clip_empty, has_crops = array <= logvar;
    const int64_t parts = (is_empty_prompt ? 1 : samples()) * (has_crops ? crops() : 1);
    const int64_t part = is_empty_prompt ? 0 : has_crops ? sample * crops() + crop : sample;
    const auto count = int64_t(out.size());
    require(place.count == count * parts && part >= 0 && part < parts, "a part of an array of encodings");
    const int64_t width = size_of(place.type);
    std::array<std::byte, 1 << 15> piece;
    const int64_t most = int64_t(piece.size()) / width;
    for (int64_t done = 0; done < count; done += most) {
        const int64_t now = std::min(most, count - done);
        file_.read_small(piece.data(), now * width, place.offset + (part * count + done) * width);
        const std::span<T> to = out.subspan(size_t(done), size_t(now));
        convert(place.type, piece.data(), to);
        for (const T element : to)
            if (!std::isfinite(element)) [[unlikely]]
                throw ConfigError("{}: {}{} is damaged: it contains {}; encode this sample again", path(),
                                  name_of(array), is_empty_prompt ? "" : fmt::format("[{}]", sample),
                                  std::isnan(element) ? "NaN" : "an infinite number");
    }
}

void EncodedFile::read(Array array, int64_t sample, std::span<double> out, int64_t crop) const {
    read_as(array, sample, out, crop);
}

void EncodedFile::read(Array array, int64_t sample, std::span<float> out, int64_t crop) const {
    read_as(array, sample, out, crop);
}

std::vector<std::string> first_captions(const std::filesystem::path& file, int64_t most) {
    const hdf5::File opened = hdf5::File::open(file.string());
    if (!opened.has("captions")) return {};
    const hdf5::Dataset captions = opened.dataset("captions");
    std::vector<std::string> texts;
    for (int64_t i = 0; i < std::min(most, captions.shape()[0]); ++i) texts.push_back(captions.text(i));
    return texts;
}

}  // namespace coeus
