// SPDX-License-Identifier: Apache-2.0
#include "coeus/state/parameters.hpp"

#include <algorithm>
#include <thread>

namespace coeus {

namespace {

int64_t bytes_of(const Storage& storage, Dtype dtype) {
    return padded_bytes(storage.shard_shape().count() * size_of(dtype));
}

int64_t bytes_of(const std::deque<Storage>& storages, Dtype dtype) {
    int64_t bytes = 0;
    for (const Storage& storage : storages) bytes += bytes_of(storage, dtype);
    return bytes;
}

// Points one kind of tensor of all storages into a buffer, one after the other; the partial ones first.
// Returns the bytes of these.
int64_t lay_out(std::deque<Storage>& storages, Tensor Storage::*kind, const Buffer& buffer, Dtype dtype) {
    std::byte* at = buffer.data();
    int64_t partial_bytes = 0;
    for (const bool partial : {true, false}) {
        for (Storage& storage : storages) {
            if (storage.is_partial() != partial) continue;
            storage.*kind = Tensor(at, dtype, storage.shard_shape());
            at += bytes_of(storage, dtype);
        }
        if (partial) partial_bytes = at - buffer.data();
    }
    return partial_bytes;
}

}  // namespace

size_t Parameters::begin_unit(int uses, bool follows_last) {
    require(!follows_last || units_.empty(), "only the first unit can be used behind the last one");
    units_.push_back({storages_.size(), 0, uses, follows_last});
    return units_.size() - 1;
}

Storage& Parameters::add(std::vector<Param> params) {
    if (here_ && units_.empty()) begin_unit();
    if (here_) ++units_.back().count;
    Storage& storage = here_ ? storages_.emplace_back(std::move(params), types_, place_, units_.size() - 1)
                             : elsewhere_.emplace_back(std::move(params), types_, place_);
    model_.push_back(&storage);
    return storage;
}

int64_t Parameters::count() const {
    int64_t n = 0;
    for (const Storage* storage : model_)
        for (const Param& param : storage->params()) n += param.shape.count();
    return n;
}

Parameters::Bytes Parameters::bytes(bool with_optimizer) const {
    Bytes b;
    b.master = bytes_of(storages_, types_.master);
    if (!is_sharded() && types_.compute != types_.master) b.compute = bytes_of(storages_, types_.compute);
    if (with_optimizer) {
        b.gradients = bytes_of(storages_, types_.accumulate());
        b.moments = 2 * bytes_of(storages_, types_.master);
    }
    return b;
}

void Parameters::allocate(bool with_optimizer, const Device& device) {
    const Bytes b = bytes(with_optimizer);
    const Memory& memory = device.memory();
    device_ = &device;
    master_ = Buffer(b.master, "weights", memory);
    lay_out(storages_, &Storage::master, master_, types_.master);
    if (b.compute > 0) compute_ = Buffer(b.compute, "weights in the compute type", memory);
    if (!is_sharded()) lay_out(storages_, &Storage::w, b.compute > 0 ? compute_ : master_, types_.compute);
    if (!with_optimizer) return;
    const Dtype acc = types_.accumulate();
    gradient_ = Buffer(b.gradients, "gradients", memory);
    partial_count_ = lay_out(storages_, &Storage::gradient, gradient_, acc) / size_of(acc);
    if (!is_sharded()) lay_out(storages_, &Storage::g, gradient_, acc);
    gradients_ = Tensor(gradient_.data(), acc, {b.gradients / size_of(acc)});
    moment1_ = Buffer(b.moments / 2, "first moments", memory);
    lay_out(storages_, &Storage::exp_avg, moment1_, types_.master);
    moment2_ = Buffer(b.moments / 2, "second moments", memory);
    lay_out(storages_, &Storage::exp_avg_sq, moment2_, types_.master);
}

std::array<Tensor, 2> Parameters::gradients_of(size_t unit) const {
    const Dtype acc = types_.accumulate();
    const auto* origin = static_cast<const std::byte*>(gradients_.data);
    std::array<Tensor, 2> parts = {gradients_.slice_rows(0, 0), gradients_.slice_rows(0, 0)};
    const Unit& range = units_[unit];
    for (size_t i = range.first; i < range.first + range.count; ++i) {
        Tensor& part = parts[storages_[i].is_partial() ? 0 : 1];
        const auto* at = static_cast<const std::byte*>(storages_[i].gradient.data);
        const int64_t first = (at - origin) / size_of(acc),
                      count = bytes_of(storages_[i], acc) / size_of(acc);
        // storages of a kind follow each other
        part = part.count() == 0 ? gradients_.slice_rows(first, count)
                                 : Tensor(part.data, acc, {part.count() + count});
    }
    return parts;
}

namespace {

// Elements of a dense piece from `begin` on, by several threads; they are on the host.
void fill(Tensor values, int64_t begin, const Storage::Piece& piece, const Param& param,
          const RandomStream& stream, int threads) {
    const int64_t cols = std::max<int64_t>(1, piece.rows.cols());
    const auto fill_some = [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
            const int64_t row = piece.first_row + (begin + i) / cols,
                          col = piece.first_col + (begin + i) % cols;
            set_element(values, i, param.init.value(stream, uint64_t(row * param.shape.cols() + col)));
        }
    };
    std::vector<std::jthread> workers;
    const int64_t share = std::max<int64_t>(1, div_ceil(values.count(), threads));
    for (int64_t first = share; first < values.count(); first += share)
        workers.emplace_back(fill_some, first, std::min(first + share, values.count()));
    fill_some(0, std::min(share, values.count()));
}

}  // namespace

void Parameters::initialise(uint64_t seed, int threads) {
    constexpr int64_t most = int64_t(8) << 20;  // elements on the way to a device
    OwnedTensor staging;
    for (const Storage& storage : storages_) {
        for (const Param& param : storage.params()) {
            const Storage::Piece piece = storage.owned(param, storage.master);
            const RandomStream stream(seed, param.name);
            const Tensor all = piece.rows.reshape({piece.rows.count()});
            if (device_->is_host()) {
                fill(all, 0, piece, param, stream, threads);
                continue;
            }
            if (!staging.view) staging = OwnedTensor(types_.master, {most}, "initial weights");
            for (int64_t first = 0; first < all.count(); first += most) {
                const Tensor some = staging.view.slice_rows(0, std::min(most, all.count() - first));
                fill(some, first, piece, param, stream, threads);
                device_->copy(all.slice_rows(first, some.count()).data, some.data, some.bytes());
            }
        }
    }
}

void Parameters::clear_moments(Exec& exec, const Kernels& kernels) const {
    for (const Buffer* moments : {&moment1_, &moment2_})
        if (moments->bytes() > 0)
            kernels.zero(exec,
                         Tensor(moments->data(), types_.master, {moments->bytes() / size_of(types_.master)}));
}

void Parameters::refresh_compute(Exec& exec, const Kernels& kernels) const {
    if (is_sharded() || types_.compute == types_.master) return;
    for (const Storage& storage : storages_) kernels.cast(exec, storage.w, storage.master);
}

}  // namespace coeus
