// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/image_batches.hpp"

#include "coeus/base/random.hpp"

#include <cmath>

namespace coeus {

ImageSizes ImageSizes::divided(int64_t ranks) const {
    require(text_tokens % ranks == 0 && patches % ranks == 0,
            "the text and the patches of a sample must divide evenly over the ranks");
    ImageSizes part = *this;
    part.text_tokens /= ranks;
    part.patches /= ranks;
    return part;
}

std::vector<double> features_of_time(double time) {
    constexpr int64_t half = time_features / 2;
    std::vector<double> features(time_features);
    for (int64_t j = 0; j < half; ++j) {
        const double angle = 1000 * time * std::exp(-std::log(1e4) * double(j) / double(half));
        features[size_t(j)] = std::cos(angle);
        features[size_t(half + j)] = std::sin(angle);
    }
    return features;
}

namespace {

// The tensors of an ImagePart without what is the same for all local batches.
struct ImageTensors {
    Shape noisy, text, pooled, times, guidance, target, weights;

    ImageTensors(const ImageSizes& own, int64_t samples)
        : noisy{samples * own.patches, own.patch_width},
          text{samples * own.text_tokens, own.text_width},
          pooled{samples, own.pooled_width},
          times{samples, time_features},
          guidance{own.reads_guidance ? samples : 0, time_features},
          target(noisy),
          weights{samples} {}

    int64_t bytes(Dtype type) const {
        int64_t in_type = 0;
        for (const Shape& shape : {noisy, text, pooled, times, guidance}) in_type += shape.count();
        return in_type * size_of(type) + (target.count() + weights.count()) * size_of(acc_of(type));
    }
};

// What the loader reads of a sample (ImageSamples).
int64_t bytes_of_sample(const ImageSizes& sizes) {
    const int64_t numbers = 2 * sizes.patches * sizes.patch_width + 2 + (sizes.reads_guidance ? 1 : 0),
                  encodings = sizes.text_tokens * sizes.text_width + sizes.pooled_width;
    return numbers * size_of(Dtype::f64) + encodings * size_of(Dtype::f32);
}

template <class From>
void copy_to(Tensor to, std::span<const From> from) {
    const auto convert = [&]<class T>(T, auto as) {
        T* out = to.as<T>();
        for (const From x : from) *out++ = T(decltype(as)(x));
    };
    require(to.count() == int64_t(from.size()), "a local batch does not have the planned shape");
    switch (to.dtype) {
        case Dtype::f64: return convert(double(), double());
        case Dtype::f32: return convert(float(), float());
        case Dtype::bf16: return convert(bf16(), float());
        default: throw LogicError("layers compute in float64, float32 or bfloat16");
    }
}

// This rank's run of `count` rows of each sample, of all that a sample has.
template <class From>
void copy_parts(Tensor to, std::span<const From> from, int64_t samples, int64_t rows, int64_t rank) {
    const int64_t own = to.rows() / samples, width = to.cols();
    require(int64_t(from.size()) == samples * rows * width, "a local batch does not have the planned shape");
    for (int64_t s = 0; s < samples; ++s)
        copy_to(to.slice_rows(s * own, own),
                from.subspan(size_t((s * rows + rank * own) * width), size_t(own * width)));
}

OwnedTensor moved_numbers(const Device& device, const std::vector<int32_t>& numbers,
                          const std::string& what) {
    OwnedTensor there(Dtype::i32, {int64_t(numbers.size())}, what, device.memory());
    device.copy(there.view.data, numbers.data(), there.view.bytes());
    return there;
}

// All tokens of text have position 0, and patch p of the whole image has position 1 + p.
std::vector<int32_t> positions_of(const ImageSizes& own, int64_t samples, int64_t rank) {
    std::vector<int32_t> all;
    for (int64_t s = 0; s < samples; ++s) {
        all.insert(all.end(), size_t(own.text_tokens), 0);
        for (int64_t p = 0; p < own.patches; ++p) all.push_back(int32_t(1 + rank * own.patches + p));
    }
    return all;
}

// The row in stream order of each row in sample order (ImageRows).
std::vector<int32_t> stream_order(const ImageSizes& own, int64_t samples) {
    std::vector<int32_t> all;
    for (int64_t s = 0; s < samples; ++s) {
        for (int64_t t = 0; t < own.text_tokens; ++t) all.push_back(int32_t(s * own.text_tokens + t));
        for (int64_t p = 0; p < own.patches; ++p)
            all.push_back(int32_t(samples * own.text_tokens + s * own.patches + p));
    }
    return all;
}

std::vector<int32_t> inverse(const std::vector<int32_t>& order) {
    std::vector<int32_t> back(order.size());
    for (size_t i = 0; i < order.size(); ++i) back[size_t(order[i])] = int32_t(i);
    return back;
}

}  // namespace

BatchBytes ImageBatches::bytes(const LocalBatches& training, const BatchShape& validation, int ranks,
                               Backend backend) const {
    const ImageSizes own = sizes_.divided(ranks);
    const int64_t step = training.number * training.shape.sequences, one = training.shape.sequences;
    const auto of_parts = [&](int64_t samples) { return ImageTensors(own, samples).bytes(type_); };
    const int64_t read = (2 * step + validation.sequences) * bytes_of_sample(sizes_);
    const int64_t tables =
        own.tokens() * size_of(Dtype::i32) *
        (one + validation.sequences + 2 * (one / training.micro_batches + validation.sequences));
    if (backend == Backend::cpu) return {.host = read + of_parts(step + validation.sequences) + tables};
    return {.host = read + of_parts(step + validation.sequences),
            .device = of_parts(one + validation.sequences) + tables};
}

std::unique_ptr<BatchPart> ImageBatches::part(const LocalBatches& batches, const SequencePart& part,
                                              const Device& device) const {
    require(part.gap == 0 && sizes_.tokens() % part.count == 0 && part.first % part.count == 0,
            "ranks have equal runs of a sample");
    return std::make_unique<ImagePart>(sizes_, type_, batches, sizes_.tokens() / part.count,
                                       part.first / part.count, device);
}

Batch ImageBatches::planned(const BatchShape& shape, int ranks) const {
    require(shape.seq_len == sizes_.tokens(), "a sequence is the text and the patches of a sample");
    const ImageSizes own = sizes_.divided(ranks);
    const ImageTensors shapes(own, shape.sequences);
    const Dtype acc = acc_of(type_);
    const Tensor rows(nullptr, Dtype::i32, {shape.sequences * own.tokens()});
    return {.sequences = shape.sequences,
            .seq_len = own.tokens(),
            .positions = rows,
            .images = {.text_tokens = own.text_tokens,
                       .patches = own.patches,
                       .noisy = Tensor(nullptr, type_, shapes.noisy),
                       .text = Tensor(nullptr, type_, shapes.text),
                       .pooled = Tensor(nullptr, type_, shapes.pooled),
                       .times = Tensor(nullptr, type_, shapes.times),
                       .guidance = own.reads_guidance ? Tensor(nullptr, type_, shapes.guidance) : Tensor(),
                       .target = Tensor(nullptr, acc, shapes.target),
                       .weights = Tensor(nullptr, acc, shapes.weights),
                       .order = rows,
                       .back = rows}};
}

std::shared_ptr<const LocalBatch> ImageBatches::drawn(const BatchShape& shape) const {
    struct Drawn {
        std::vector<double> noisy, target, times, weights, guidance;
        std::vector<float> text, pooled;
        LocalBatch batch;
    };
    const auto drawn = std::make_shared<Drawn>();
    const int64_t samples = shape.sequences, latents = samples * sizes_.patches * sizes_.patch_width;
    const auto normal = []<class T>(std::vector<T>& to, int64_t count, const char* stream) {
        const RandomStream random(0, stream);
        for (int64_t i = 0; i < count; ++i) to.push_back(T(normal_quantile(random.uniform(uint64_t(i)))));
    };
    normal(drawn->noisy, latents, "noisy");
    normal(drawn->target, latents, "target");
    normal(drawn->text, samples * sizes_.text_tokens * sizes_.text_width, "text");
    normal(drawn->pooled, samples * sizes_.pooled_width, "pooled");
    for (int64_t s = 0; s < samples; ++s) drawn->times.push_back((double(s) + 0.5) / double(samples));
    drawn->weights.assign(size_t(samples), 1);
    if (sizes_.reads_guidance) drawn->guidance.assign(size_t(samples), 1);
    drawn->batch.images = {.samples = samples,
                           .patches = sizes_.patches,
                           .patch_width = sizes_.patch_width,
                           .text_tokens = sizes_.text_tokens,
                           .text_width = sizes_.text_width,
                           .pooled_width = sizes_.pooled_width,
                           .noisy = drawn->noisy,
                           .target = drawn->target,
                           .text = drawn->text,
                           .pooled = drawn->pooled,
                           .times = drawn->times,
                           .weights = drawn->weights,
                           .guidance = drawn->guidance};
    return {drawn, &drawn->batch};
}

ImagePart::ImagePart(const ImageSizes& sizes, Dtype type, const LocalBatches& batches, int64_t ranks,
                     int64_t rank, const Device& device)
    : sizes_(sizes), own_(sizes.divided(ranks)), samples_(batches.shape.sequences), rank_(rank) {
    const ImageTensors shapes(own_, samples_);
    const auto staged = [&](const Shape& shape, Dtype dtype, const char* what) {
        return StagedTensor(device, dtype, shape, what, batches.number);
    };
    noisy_ = staged(shapes.noisy, type, "latents of this rank");
    text_ = staged(shapes.text, type, "encoded texts of this rank");
    pooled_ = staged(shapes.pooled, type, "pooled texts");
    times_ = staged(shapes.times, type, "features of times");
    if (own_.reads_guidance) guidance_ = staged(shapes.guidance, type, "features of guidance");
    target_ = staged(shapes.target, acc_of(type), "targets of this rank");
    weights_ = staged(shapes.weights, acc_of(type), "weights of samples");
    const std::vector<int32_t> order = stream_order(own_, samples_ / batches.micro_batches);
    positions_ = moved_numbers(device, positions_of(own_, samples_, rank), "positions");
    order_ = moved_numbers(device, order, "order of rows");
    back_ = moved_numbers(device, inverse(order), "order of rows");
}

void ImagePart::stage(int64_t place, const LocalBatch& batch) {
    const ImageSamples& images = batch.images;
    require(images.samples == samples_, "a local batch does not have the planned number of samples");
    copy_parts(noisy_.host(place), images.noisy, samples_, sizes_.patches, rank_);
    copy_parts(target_.host(place), images.target, samples_, sizes_.patches, rank_);
    copy_parts(text_.host(place), images.text, samples_, sizes_.text_tokens, rank_);
    copy_to(pooled_.host(place), images.pooled);
    copy_to(weights_.host(place), images.weights);
    const auto write_features = [&](const StagedTensor& staged, std::span<const double> times) {
        require(int64_t(times.size()) == samples_, "a local batch does not have a number for each sample");
        for (int64_t s = 0; s < samples_; ++s)
            copy_to(staged.host(place).slice_rows(s, 1),
                    std::span<const double>(features_of_time(times[size_t(s)])));
    };
    write_features(times_, images.times);
    if (own_.reads_guidance) write_features(guidance_, images.guidance);
}

Batch ImagePart::bring(Exec& exec, int64_t place) const {
    const auto brought = [&](const StagedTensor& staged) {
        return staged.count() > 0 ? staged.brought(exec, staged.host(place).rows(), place) : Tensor();
    };
    return {.sequences = samples_,
            .seq_len = own_.tokens(),
            .positions = positions_.view,
            .images = {.text_tokens = own_.text_tokens,
                       .patches = own_.patches,
                       .noisy = brought(noisy_),
                       .text = brought(text_),
                       .pooled = brought(pooled_),
                       .times = brought(times_),
                       .guidance = brought(guidance_),
                       .target = brought(target_),
                       .weights = brought(weights_),
                       .order = order_.view,
                       .back = back_.view}};
}

}  // namespace coeus
