// SPDX-License-Identifier: Apache-2.0
#include "coeus/state/one_scale_weights.hpp"

#include <algorithm>

namespace coeus {

const Storage::OneScale& one_scale_of(const Storage& storage, const Param& param) {
    return storage.one_scales[size_t(&param - storage.params().data())];
}

OneScaleWeights::OneScaleWeights(Parameters& parameters) : parameters_(parameters) {
    for (const Storage* storage : parameters.model())
        if (storage->has_one_scales())
            (storage->trainable() ? trained_ : untrained_) += int64_t(storage->params().size());
}

int64_t OneScaleWeights::bytes() const {
    const int64_t n = (trained_ + untrained_) * apart;
    return padded_bytes(4 * n) + padded_bytes(2 * n) + padded_bytes(4 * n);
}

// Every rank has places for the parameters of the whole model, in the same order.
void OneScaleWeights::allocate() {
    if (!any()) return;
    const int64_t n = (trained_ + untrained_) * apart;
    buffer_ = Buffer(bytes(), "scales of weights", parameters_.device().memory());
    largest_ = Tensor(buffer_.data(), Dtype::i32, {n});
    rounded_ = Tensor(buffer_.data() + padded_bytes(4 * n), Dtype::bf16, {n});
    scales_ = Tensor(buffer_.data() + padded_bytes(4 * n) + padded_bytes(2 * n), Dtype::f32, {n});
    int64_t trained = 0, untrained = trained_;
    for (const Storage* one : parameters_.model()) {
        if (!one->has_one_scales()) continue;
        const auto count = int64_t(one->params().size());
        int64_t& number = one->trainable() ? trained : untrained;
        for (Storage& storage : parameters_.storages()) {
            if (&storage != one) continue;
            for (int64_t i = 0; i < count; ++i)
                storage.one_scales[size_t(i)] = {.largest = largest_.slice_rows((number + i) * apart, 1),
                                                 .scale = scales_.slice_rows((number + i) * apart, 1)};
        }
        number += count;
    }
}

void OneScaleWeights::renew(Exec& exec, const Kernels& kernels, const Communicator& owners) const {
    if (!any()) return;
    kernels.zero(exec, largest_);
    for (const Storage& storage : parameters_.storages()) find_largest(exec, kernels, storage);
    agree(exec, kernels, owners, trained_ + untrained_);
    for (const Storage& storage : parameters_.storages()) make_in_8_bits(exec, kernels, storage);
}

void OneScaleWeights::begin_update(Exec& exec, const Kernels& kernels) const {
    if (trained_ > 0) kernels.zero(exec, largest_.slice_rows(0, trained_ * apart));
}

void OneScaleWeights::finish_update(Exec& exec, const Kernels& kernels, const Communicator& owners) const {
    if (trained_ == 0) return;
    agree(exec, kernels, owners, trained_);
    for (const Storage& storage : parameters_.storages())
        if (storage.trainable()) make_in_8_bits(exec, kernels, storage);
}

void OneScaleWeights::find_largest(Exec& exec, const Kernels& kernels, const Storage& storage) {
    if (!storage.has_one_scales()) return;
    const bool has_copy = storage.compute && !storage.is_8_bit();
    for (const OwnedRun& run : storage.runs())
        kernels.largest_magnitudes(exec, one_scale_of(storage, *run.param).largest,
                                   Storage::rows_of(run, has_copy ? storage.compute : storage.master),
                                   ScaleGroups::one, {});
}

// On the largest magnitudes of the first `count` parameters.
void OneScaleWeights::agree(Exec& exec, const Kernels& kernels, const Communicator& owners,
                            int64_t count) const {
    const Tensor largest = largest_.slice_rows(0, count * apart);
    {
        const ObservedExchange noted(exec, Exchange::agree_on_weight_scales, largest);
        owners.all_reduce(exec, largest, Reduce::max);
    }
    // a rounded weight's magnitude is the rounded magnitude
    const bool is_rounded = std::ranges::any_of(parameters_.storages(), [](const Storage& storage) {
        return storage.has_one_scales() && storage.w.dtype == Dtype::bf16;
    });
    if (!is_rounded) return;
    const Tensor magnitudes(largest.data, Dtype::f32, largest.shape),
        rounded = rounded_.slice_rows(0, count * apart);
    kernels.cast(exec, rounded, magnitudes);
    kernels.cast(exec, magnitudes, rounded);
}

// The scales, and the weights if this rank has them whole.
void OneScaleWeights::make_in_8_bits(Exec& exec, const Kernels& kernels, const Storage& storage) {
    if (!storage.is_8_bit()) return;
    for (const Storage::OneScale& one : storage.one_scales) {
        Tensor scale_only(nullptr, storage.w.dtype, {0, storage.w.cols()});
        scale_only.groups = ScaleGroups::one;
        scale_only.scale = one.scale.data;
        kernels.quantize(exec, scale_only, Tensor(nullptr, Dtype::f32, {0, storage.w.cols()}), one.largest,
                         ScaleRule::exact, {});
    }
    if (storage.compute) quantize_owned(exec, kernels, storage, storage.compute);
}

void quantize_owned(Exec& exec, const Kernels& kernels, const Storage& storage, Tensor to) {
    for (const OwnedRun& run : storage.runs()) {
        Tensor q = to.slice_rows(run.first, run.rows);
        q.groups = ScaleGroups::one;
        kernels.quantize(exec, q, storage.master.slice_rows(run.first, run.rows),
                         one_scale_of(storage, *run.param).largest, ScaleRule::exact, {});
    }
}

}  // namespace coeus
