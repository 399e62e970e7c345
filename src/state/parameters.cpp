// SPDX-License-Identifier: Apache-2.0
#include "coeus/state/parameters.hpp"

#include "coeus/device/host_rows.hpp"

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

size_t Parameters::begin_unit(int uses) {
    units_.push_back({storages_.size(), 0, uses});
    return units_.size() - 1;
}

Neighbours Parameters::neighbours() const {
    Neighbours all = other_neighbours_;
    for (size_t u = 0; u + 1 < units_.size(); ++u) all.emplace_back(u, u + 1);
    return all;
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
    if (!types_.offloads_master()) b.master = bytes_of(storages_, types_.master);
    // gathered weights can be made of a master that is on the device as well
    const bool copied = types_.compute != types_.master && (!is_sharded() || types_.offload);
    if (copied) b.compute = bytes_of(storages_, types_.compute);
    if (with_optimizer) {
        b.gradients = bytes_of(storages_, types_.accumulate());
        if (!types_.offload) b.moments = 2 * bytes_of(storages_, types_.master);
    }
    return b;
}

Parameters::Bytes Parameters::offloaded_bytes() const {
    Bytes b;
    if (types_.offloads_master()) b.master = bytes_of(storages_, types_.master);
    if (types_.offload) b.moments = 2 * bytes_of(storages_, types_.master);
    return b;
}

void Parameters::allocate(bool with_optimizer, const Device& device) {
    const Bytes b = bytes(with_optimizer), offloaded = offloaded_bytes();
    const Memory &memory = device.memory(), &host = device.staging();
    device_ = &device;
    master_ = Buffer(b.master + offloaded.master, "weights", types_.offloads_master() ? host : memory);
    lay_out(storages_, &Storage::master, master_, types_.master);
    if (b.compute > 0) {
        compute_ = Buffer(b.compute, "weights in the compute type", memory);
        lay_out(storages_, &Storage::compute, compute_, types_.compute);
    }
    if (!is_sharded()) lay_out(storages_, &Storage::w, b.compute > 0 ? compute_ : master_, types_.compute);
    if (!with_optimizer) return;
    const Dtype acc = types_.accumulate();
    gradient_ = Buffer(b.gradients, "gradients", memory);
    partial_count_ = lay_out(storages_, &Storage::gradient, gradient_, acc) / size_of(acc);
    if (!is_sharded()) lay_out(storages_, &Storage::g, gradient_, acc);
    gradients_ = Tensor(gradient_.data(), acc, {b.gradients / size_of(acc)});
    const int64_t moment_bytes = (b.moments + offloaded.moments) / 2;
    const Memory& of_moments = types_.offload ? host : memory;
    moment1_ = Buffer(moment_bytes, "first moments", of_moments);
    lay_out(storages_, &Storage::exp_avg, moment1_, types_.master);
    moment2_ = Buffer(moment_bytes, "second moments", of_moments);
    lay_out(storages_, &Storage::exp_avg_sq, moment2_, types_.master);
}

std::vector<std::byte*> Parameters::offloaded_vectors() const {
    std::vector<std::byte*> all;
    if (types_.offload) all = {moment1_.data(), moment2_.data()};
    if (types_.offloads_master()) all.push_back(master_.data());
    return all;
}

std::array<std::span<std::byte>, 3> Parameters::owned_state() const {
    const auto all = [](const Buffer& buffer) { return std::span(buffer.data(), size_t(buffer.bytes())); };
    return {all(master_), all(moment1_), all(moment2_)};
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
    for (const Storage& storage : storages_)
        for (const Param& param : storage.params()) {
            const Storage::Piece piece = storage.owned(param, storage.master);
            const RandomStream stream(seed, param.name);
            const Tensor all = piece.rows.reshape({piece.rows.count()});
            write_rows(master_device(), all, [&](Tensor values, int64_t first) {
                fill(values, first, piece, param, stream, threads);
            });
        }
}

void Parameters::clear_moments(Exec& exec, const Kernels& kernels) const {
    for (const Buffer* moments : {&moment1_, &moment2_})
        if (types_.offload)
            std::fill_n(moments->data(), moments->bytes(), std::byte(0));
        else if (moments->bytes() > 0)
            kernels.zero(exec,
                         Tensor(moments->data(), types_.master, {moments->bytes() / size_of(types_.master)}));
}

void Parameters::refresh_compute(Exec& exec, const Kernels& kernels) const {
    for (const Storage& storage : storages_)
        if (storage.compute) kernels.cast(exec, storage.compute, storage.master);
}

OwnedRows Parameters::rows_of(const Storage& storage, const Param& param, int64_t first, int64_t count) {
    const auto rows = [&](Tensor of) {
        return of ? storage.owned(param, of).rows.slice_rows(first, count) : Tensor{};
    };
    const Storage::Piece all = storage.owned(param, storage.master);
    return {param,
            all.first_row + first,
            all.first_col,
            {.master = rows(storage.master),
             .exp_avg = rows(storage.exp_avg),
             .exp_avg_sq = rows(storage.exp_avg_sq),
             .grad = rows(storage.gradient),
             .compute = rows(storage.compute)}};
}

void Parameters::for_each_owned(EachRows each) const {
    for (const Storage& storage : storages_) {
        if (!storage.trainable()) continue;
        for (const Param& param : storage.params())
            if (const int64_t rows = storage.owned(param, storage.master).rows.rows(); rows > 0)
                each(rows_of(storage, param, 0, rows));
    }
}

}  // namespace coeus
