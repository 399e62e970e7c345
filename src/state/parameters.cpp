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

// f(storage) in the order in which they lie in every buffer: those first whose gradients are still to be
// summed over the tensor-parallel ranks.
template <class Storages, class F>
void in_order_of_memory(Storages& storages, F&& f) {
    for (const bool partial : {true, false})
        for (auto& storage : storages)
            if (storage.is_partial() == partial) f(storage);
}

// Points one kind of tensor of all storages into a buffer, one after the other. Returns the bytes of the
// partial ones.
int64_t lay_out(std::deque<Storage>& storages, Tensor Storage::*kind, const Buffer& buffer, Dtype dtype) {
    std::byte* at = buffer.data();
    int64_t partial_bytes = 0;
    in_order_of_memory(storages, [&](Storage& storage) {
        storage.*kind = Tensor(at, dtype, storage.shard_shape());
        at += bytes_of(storage, dtype);
        if (storage.is_partial()) partial_bytes = at - buffer.data();
    });
    return partial_bytes;
}

// The same of the moments of a number, of the storages that have one.
void lay_out_moments(std::deque<Storage>& storages, size_t number, const Buffer& buffer) {
    std::byte* at = buffer.data();
    in_order_of_memory(storages, [&](Storage& storage) {
        if (number >= storage.kept().size()) return;
        const Dtype dtype = storage.kept()[number].dtype;
        storage.moments[number] = Tensor(at, dtype, storage.shard_shape());
        at += bytes_of(storage, dtype);
    });
}

}  // namespace

ElementPlace OwnedRows::place() const {
    const int64_t global_cols = param.shape.cols();
    return {.stream = stream_of(param.name),
            .first_index = uint64_t(first_row * global_cols + first_col),
            .run = master.cols(),
            .stride = uint64_t(global_cols)};
}

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

void Parameters::keep(FunctionRef<Kept(const Param&)> kept_of) {
    const auto keep_of = [&](Storage& storage) {
        const Param& first = storage.params().front();
        const std::vector<Moment> moments = kept_of(first).moments;
        require(moments.size() <= OwnedRows::most_moments, "an optimizer keeps too many moments");
        for (const Param& param : storage.params())
            if (kept_of(param).moments != moments)
                throw ConfigError(
                    "optimizer.param_groups: {} and {} are stored together, so that one kind of optimizer "
                    "updates both; give them the same optimizer_name",
                    first.name, param.name);
        storage.keep(moments, [&](const Param& param) { return kept_of(param).group; });
    };
    for (std::deque<Storage>* storages : {&storages_, &elsewhere_})
        for (Storage& storage : *storages) keep_of(storage);
}

int64_t Parameters::full_state_bytes() const {
    int64_t bytes = 0;
    for (const Storage* storage : model_) {
        int64_t of_element = size_of(types_.master);
        for (const Moment& moment : storage->kept()) of_element += size_of(moment.dtype);
        for (const Param& param : storage->params()) bytes += of_element * param.shape.count();
    }
    return bytes;
}

size_t Parameters::most_kept() const {
    size_t most = 0;
    for (const Storage& storage : storages_) most = std::max(most, storage.kept().size());
    return most;
}

int64_t Parameters::moment_bytes(size_t number) const {
    int64_t bytes = 0;
    for (const Storage& storage : storages_)
        if (number < storage.kept().size()) bytes += bytes_of(storage, storage.kept()[number].dtype);
    return bytes;
}

int64_t Parameters::moment_bytes() const {
    int64_t bytes = 0;
    for (size_t i = 0; i < most_kept(); ++i) bytes += moment_bytes(i);
    return bytes;
}

Parameters::Bytes Parameters::bytes(bool with_optimizer) const {
    Bytes b;
    if (!types_.offloads_master()) b.master = bytes_of(storages_, types_.master);
    // gathered weights can be made of a master that is on the device as well
    const bool copied = types_.compute != types_.master && (!is_sharded() || types_.offload);
    if (copied) b.compute = bytes_of(storages_, types_.compute);
    if (with_optimizer) {
        b.gradients = bytes_of(storages_, types_.accumulate());
        if (!types_.offload) b.moments = moment_bytes();
    }
    return b;
}

Parameters::Bytes Parameters::offloaded_bytes() const {
    Bytes b;
    if (types_.offloads_master()) b.master = bytes_of(storages_, types_.master);
    if (types_.offload) b.moments = moment_bytes();
    return b;
}

void Parameters::allocate(bool with_optimizer, const Device& device) {
    const Bytes b = bytes(with_optimizer), offloaded = offloaded_bytes();
    const Memory &memory = device.memory(), &host = device.staging();
    device_ = &device;
    master_ = Buffer(b.master + offloaded.master, "weights", types_.offloads_master() ? host : memory);
    lay_out(storages_, &Storage::master, master_, types_.master);
    const auto all = [](const Buffer& buffer) { return std::span(buffer.data(), size_t(buffer.bytes())); };
    owned_state_ = {all(master_)};
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
    moments_.resize(most_kept());
    for (size_t i = 0; i < moments_.size(); ++i) {
        moments_[i] = Buffer(moment_bytes(i), "optimizer moments", types_.offload ? host : memory);
        lay_out_moments(storages_, i, moments_[i]);
        owned_state_.push_back(all(moments_[i]));
    }
}

std::vector<int64_t> Parameters::offloaded_kinds() const {
    std::vector<int64_t> all;
    for (size_t i = 0; types_.offload && i < most_kept(); ++i) all.push_back(moment_bytes(i));
    if (types_.offloads_master()) all.push_back(bytes_of(storages_, types_.master));
    return all;
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
    for (const Buffer& moments : moments_)
        if (types_.offload)
            std::fill_n(moments.data(), moments.bytes(), std::byte(0));
        else if (moments.bytes() > 0)
            kernels.zero(exec, Tensor(moments.data(), Dtype::u8, {moments.bytes()}));
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
    OwnedRows owned = {.param = param,
                       .first_row = all.first_row + first,
                       .first_col = all.first_col,
                       .master = rows(storage.master),
                       .gradient = rows(storage.gradient),
                       .compute = rows(storage.compute),
                       .moments = {}};
    for (size_t i = 0; i < storage.moments.size(); ++i) owned.moments[i] = rows(storage.moments[i]);
    return owned;
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
