// SPDX-License-Identifier: Apache-2.0
#include "coeus/state/parameters.hpp"

#include <thread>

namespace coeus {

namespace {

constexpr int64_t alignment = 64;  // bytes, of every matrix

int64_t padded_bytes(const Storage& storage, Dtype dtype) {
    return round_up(storage.shape().count() * size_of(dtype), alignment);
}

int64_t padded_bytes(const std::deque<Storage>& storages, Dtype dtype) {
    int64_t bytes = 0;
    for (const Storage& storage : storages) bytes += padded_bytes(storage, dtype);
    return bytes;
}

// Points one kind of tensor of all storages into a buffer, one after the other.
void lay_out(std::deque<Storage>& storages, Tensor Storage::*kind, const Buffer& buffer, Dtype dtype) {
    std::byte* at = buffer.data();
    for (Storage& storage : storages) {
        storage.*kind = Tensor(at, dtype, storage.shape());
        at += padded_bytes(storage, dtype);
    }
}

}  // namespace

Storage& Parameters::add(std::vector<Param> params) {
    return storages_.emplace_back(std::move(params), types_);
}

int64_t Parameters::count() const {
    int64_t n = 0;
    for (const Storage& storage : storages_) n += storage.shape().count();
    return n;
}

Parameters::Bytes Parameters::bytes(bool with_optimizer) const {
    Bytes b;
    b.master = padded_bytes(storages_, types_.master);
    if (types_.compute != types_.master) b.compute = padded_bytes(storages_, types_.compute);
    if (with_optimizer) {
        b.gradients = padded_bytes(storages_, types_.accumulate());
        b.moments = 2 * padded_bytes(storages_, types_.master);
    }
    return b;
}

void Parameters::allocate(bool with_optimizer) {
    const Bytes b = bytes(with_optimizer);
    master_ = Buffer(b.master, "weights");
    lay_out(storages_, &Storage::master, master_, types_.master);
    if (b.compute > 0) compute_ = Buffer(b.compute, "weights in the compute type");
    lay_out(storages_, &Storage::w, b.compute > 0 ? compute_ : master_, types_.compute);
    if (!with_optimizer) return;
    gradient_ = Buffer(b.gradients, "gradients");
    lay_out(storages_, &Storage::g, gradient_, types_.accumulate());
    gradients_ = Tensor(gradient_.data(), types_.accumulate(), {b.gradients / size_of(types_.accumulate())});
    moment1_ = Buffer(b.moments / 2, "first moments");
    lay_out(storages_, &Storage::exp_avg, moment1_, types_.master);
    moment2_ = Buffer(b.moments / 2, "second moments");
    lay_out(storages_, &Storage::exp_avg_sq, moment2_, types_.master);
}

void Parameters::initialise(uint64_t seed, int threads) {
    for (const Storage& storage : storages_) {
        for (const Param& param : storage.params()) {
            const Tensor values = storage.rows_of(param, storage.master);
            const RandomStream stream(seed, param.name);
            const auto fill = [&](int64_t first, int64_t last) {
                for (int64_t i = first; i < last; ++i)
                    set_element(values, i, param.init.value(stream, uint64_t(i)));
            };
            std::vector<std::jthread> workers;
            const int64_t share = div_ceil(values.count(), threads);
            for (int64_t first = share; first < values.count(); first += share)
                workers.emplace_back(fill, first, std::min(first + share, values.count()));
            fill(0, std::min(share, values.count()));
        }
    }
}

void Parameters::refresh_compute(Exec& exec, const Kernels& kernels) const {
    if (types_.compute == types_.master) return;
    for (const Storage& storage : storages_) kernels.cast(exec, storage.w, storage.master);
}

}  // namespace coeus
