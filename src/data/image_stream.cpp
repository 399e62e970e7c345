// SPDX-License-Identifier: Apache-2.0
#include "coeus/data/image_stream.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"

#include <algorithm>
#include <string>

namespace coeus {

namespace {

std::string text_of(const EncodedShape& shape) {
    return fmt::format("latents [{}, {}, {}], text [{}, {}], pooled text [{}]", shape.channels, shape.height,
                       shape.width, shape.text_tokens, shape.text_width, shape.pooled_width);
}

std::string text_of(const Encoding& encoding) {
    return fmt::format("codec \"{}\", factor {}, scale {}, shift {}, text \"{}\"", encoding.codec,
                       encoding.factor, encoding.scale, encoding.shift, encoding.text);
}

void require_alike(const EncodedFile& one, const EncodedFile& other) {
    if (one.shape() != other.shape())
        throw ConfigError("{} has {}, but {} has {}; files of one run have the same", other.path(),
                          text_of(other.shape()), one.path(), text_of(one.shape()));
    if (one.encoding() != other.encoding())
        throw ConfigError("{} was made with {}, but {} with {}; files of one run have the same encoders",
                          other.path(), text_of(other.encoding()), one.path(), text_of(one.encoding()));
    if (one.has(EncodedFile::times) != other.has(EncodedFile::times)) {
        const bool first = one.has(EncodedFile::times);
        throw ConfigError("{} has /times, but {} has none; give times to all files of a run, or to none",
                          (first ? one : other).path(), (first ? other : one).path());
    }
}

// Source 0 has the order of a run without a blend; the other sources are permuted with other seeds.
std::vector<SampleOrder> orders_of(const std::vector<const EncodedFile*>& files,
                                   const ImageStream::Options& options) {
    std::vector<SampleOrder> orders;
    uint64_t seed = options.seed;
    for (const EncodedFile* file : files) {
        if (file->samples() < 2 && options.subset != Subset::all)
            throw ConfigError(
                "{}: has only one sample, so none can be held out for validation; use more data, or separate "
                "validation data (validation.dataset_path)",
                file->path());
        orders.emplace_back(
            file->samples(),
            SampleOrder::Options{.seed = seed, .shuffle = options.shuffle, .subset = options.subset});
        seed += 0x9E3779B97F4A7C15u;
    }
    return orders;
}

}  // namespace

ImageBuffer::ImageBuffer(const EncodedShape& shape, int64_t samples)
    : shape_(shape),
      noisy_(size_t(samples * shape.latents())),
      target_(noisy_.size()),
      times_(size_t(samples)),
      weights_(size_t(samples)),
      text_(size_t(samples * shape.text_tokens * shape.text_width)),
      pooled_(size_t(samples * shape.pooled_width)) {}

ImageBuffer::Row ImageBuffer::row(int64_t sample) {
    const auto part = [&](auto& all) {
        const size_t each = all.size() / times_.size();
        return std::span(all).subspan(size_t(sample) * each, each);
    };
    return {part(noisy_),  part(target_),           part(text_),
            part(pooled_), &times_[size_t(sample)], &weights_[size_t(sample)]};
}

ImageSamples ImageBuffer::view(int64_t samples) const {
    return ImageSamples{.samples = int64_t(times_.size()),
                        .patches = shape_.patches(),
                        .patch_width = shape_.patch_width(),
                        .text_tokens = shape_.text_tokens,
                        .text_width = shape_.text_width,
                        .pooled_width = shape_.pooled_width,
                        .noisy = noisy_,
                        .target = target_,
                        .text = text_,
                        .pooled = pooled_,
                        .times = times_,
                        .weights = weights_,
                        .guidance = {}}
        .slice(0, samples);
}

ImageStream::ImageStream(std::vector<const EncodedFile*> files, const std::vector<double>& weights,
                         const Options& options)
    : files_(std::move(files)),
      options_(options),
      draws_(options.seed),
      blend_(orders_of(files_, options), weights) {
    for (const EncodedFile* file : files_) require_alike(*files_[0], *file);
    if (options.times == Times::all_eighths && files_[0]->has(EncodedFile::times))
        throw ConfigError(
            "validation.all_timesteps = true: {} has /times, which are those of its samples; remove "
            "one of the two",
            files_[0]->path());
    const auto elements = size_t(shape().latents());
    latents_.resize(elements), logvar_.resize(elements), noise_.resize(elements);
    if (options.drop_prompts <= 0) return;
    for (const EncodedFile* file : files_) {
        if (const std::string missing = file->empty_prompt_missing(); !missing.empty())
            throw ConfigError("training.classifier_free_guidance_prob = {}: {}", options.drop_prompts,
                              missing);
        EmptyPrompt& empty = empty_.emplace_back();
        empty.t5.resize(size_t(shape().text_tokens * shape().text_width));
        empty.clip.resize(size_t(shape().pooled_width));
        file->read(EncodedFile::t5_empty, 0, std::span(empty.t5));
        file->read(EncodedFile::clip_empty, 0, std::span(empty.clip));
    }
}

double ImageStream::time_of(int64_t i, const SourceBlend::Place& place) const {
    const EncodedFile& file = *files_[place.source];
    if (file.has(EncodedFile::times)) {
        double time = 0;
        file.read(EncodedFile::times, place.sample, std::span(&time, 1));
        return time;
    }
    if (options_.times == Times::drawn) return draws_.time(i);
    return (double(i % times_in_turn) + 0.5) / double(times_in_turn);
}

void ImageStream::read_text(int64_t i, const SourceBlend::Place& place, const ImageBuffer::Row& to) const {
    const EncodedFile& file = *files_[place.source];
    const ImageDraws::Dropped dropped =
        empty_.empty() ? ImageDraws::Dropped{}
                       : draws_.dropped(i, options_.drop_prompts, options_.drop_together);
    if (dropped.t5)
        std::ranges::copy(empty_[place.source].t5, to.text.begin());
    else
        file.read(EncodedFile::t5, place.sample, to.text);
    if (dropped.clip)
        std::ranges::copy(empty_[place.source].clip, to.pooled.begin());
    else
        file.read(EncodedFile::clip, place.sample, to.pooled);
}

void ImageStream::read(int64_t i, const ImageBuffer::Row& to) {
    const SourceBlend::Place place = blend_.place_of(i / repeats());
    const EncodedFile& file = *files_[place.source];
    const int64_t crop = place.epoch % file.crops();
    const bool is_drawn = file.has(EncodedFile::logvar);
    file.read(EncodedFile::mean, place.sample, std::span(latents_), crop);
    if (is_drawn) {
        file.read(EncodedFile::logvar, place.sample, std::span(logvar_), crop);
        draws_.latent_noise(i, noise_);
    }
    const LatentScale scale = {file.encoding().scale, file.encoding().shift};
    scale.encode(latents_, is_drawn ? std::span<const double>(logvar_) : std::span<const double>(), noise_);
    if (file.has(EncodedFile::noise))
        file.read(EncodedFile::noise, place.sample, std::span(noise_));
    else
        draws_.noise(i, noise_);
    *to.time = time_of(i, place);
    *to.weight = 1;
    mix_patches(shape().channels, shape().height, shape().width, latents_, noise_, *to.time, to.noisy,
                to.target);
    read_text(i, place, to);
}

void ImageReader::reserve(int64_t samples) {
    for (ImageBuffer& buffer : buffers_) buffer = ImageBuffer(stream_.shape(), samples);
}

ReadSamples ImageReader::read(int64_t first, int64_t number, size_t buffer) {
    for (int64_t k = 0; k < number; ++k) stream_.read(first + k, buffers_[buffer].row(k));
    return {buffers_[buffer].view(number), number * stream_.shape().latents()};
}

}  // namespace coeus
