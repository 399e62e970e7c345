// SPDX-License-Identifier: Apache-2.0
#include "coeus/state/parameters.hpp"

#include "coeus/base/random.hpp"
#include "coeus/state/one_scale_weights.hpp"

#include <algorithm>

namespace coeus {

namespace {

int64_t bytes_of(const Storage& storage, Dtype dtype) {
    return padded_bytes(storage.shard_shape().count() * size_of(dtype));
}

int64_t gradient_bytes(const Storage& storage) {
    return storage.is_frozen() ? 0 : bytes_of(storage, storage.gradient.dtype);
}

// Bytes of the masters: of exact parameters, or of the others.
int64_t master_bytes(const std::deque<Storage>& storages, bool exact) {
    int64_t bytes = 0;
    for (const Storage& storage : storages)
        if (storage.is_exact() == exact) bytes += bytes_of(storage, storage.master_type());
    return bytes;
}

bool has_bf16_gradient(const Storage& storage) {
    return storage.gradient.dtype == Dtype::bf16;
}

// Calls f(storage) in the order of Parameters::for_each_in_memory.
template <class Storages, class F>
void in_order_of_memory(Storages& storages, size_t shardings, F&& f) {
    for (auto& storage : storages)
        if (storage.is_partial()) f(storage);
    for (size_t sharding = 0; sharding < shardings; ++sharding)
        for (const bool bf16 : {false, true})
            for (auto& storage : storages)
                if (!storage.is_partial() && storage.sharding() == sharding &&
                    has_bf16_gradient(storage) == bf16)
                    f(storage);
}

// Hands out the memory of storages, one after the other.
class Layout {
public:
    explicit Layout(const Buffer& buffer) : first_(buffer.data()), at_(first_) {}
    Tensor next(const Storage& storage, Dtype dtype) {
        const Tensor rows(at_, dtype, storage.shard_shape());
        at_ += bytes_of(storage, dtype);
        return rows;
    }
    int64_t bytes() const { return at_ - first_; }

private:
    std::byte *first_, *at_;
};

// Weights in the compute type are kept besides their masters. Gathered weights are converted from the masters
// instead, if these are on the device as well.
bool keeps_compute(const Storage& storage, const StateTypes& types) {
    return storage.w.dtype != types.master && !storage.is_exact() &&
           (!storage.is_gathered() || types.offload);
}

// The place of elements of a parameter, whose rows have `cols` of its columns.
ElementPlace place_in(const Param& param, int64_t first_row, int64_t first_col, int64_t cols) {
    const int64_t global_cols = param.shape.cols();
    return {.stream = stream_of(param.name),
            .first_index = uint64_t(first_row * global_cols + first_col),
            .run = cols == global_cols ? 0 : cols,
            .stride = uint64_t(global_cols)};
}

}  // namespace

ElementPlace OwnedRows::place() const {
    return place_in(param, first_row, first_col, master.cols());
}

size_t Parameters::begin_unit(int uses) {
    units_.push_back({storages_.size(), 0, uses});
    return units_.size() - 1;
}

Neighbours Parameters::neighbours(int distance) const {
    Neighbours all = other_neighbours_;
    for (size_t u = 0; u + 1 < units_.size(); ++u) all.emplace_back(u, u + 1);
    if (distance == 1) return all;
    const Neighbours adjacent = all;
    for (const auto& [a, b] : adjacent)
        for (const auto& [c, d] : adjacent) {
            if (a == c && b != d) all.emplace_back(b, d);
            if (b == d && a != c) all.emplace_back(a, c);
            if (b == c && a != d) all.emplace_back(a, d);
        }
    return all;
}

Storage& Parameters::add(std::vector<Param> params) {
    if (here_ && units_.empty()) begin_unit();
    if (here_) ++units_.back().count;
    require(!params.empty(), "a storage holds at least one parameter");
    const Shard& shard = params.front().shard;
    require(shard.sharding < places_.size(), "the sharding of a parameter was not added");
    require(shard.tp != Split::partial || shard.sharding == dense_sharding,
            "gradients that are sums over tensor-parallel ranks must be in the dense sharding");
    const ShardPlace& place = places_[shard.sharding];
    Storage& storage = here_ ? storages_.emplace_back(std::move(params), types_, place, units_.size() - 1)
                             : elsewhere_.emplace_back(std::move(params), types_, place);
    model_.push_back(&storage);
    return storage;
}

size_t Parameters::add_sharding(const ShardPlace& place) {
    places_.push_back(place);
    return places_.size() - 1;
}

size_t Parameters::whole_sharding() {
    if (whole_) return *whole_;
    ShardPlace whole = place();
    whole.replicas = whole.replicas * whole.fsdp;
    whole.replica = whole.replica * whole.fsdp + whole.fsdp_rank;
    whole.fsdp = 1;
    whole.fsdp_rank = 0;
    whole_ = add_sharding(whole);
    return *whole_;
}

size_t Parameters::expert_sharding() {
    if (!experts_) experts_ = experts_place_ == place() ? dense_sharding : add_sharding(experts_place_);
    return *experts_;
}

void Parameters::for_each_in_memory(FunctionRef<void(const Storage&)> each) const {
    in_order_of_memory(storages_, places_.size(), each);
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
                    "optimizer.param_groups: {} and {} are stored together, so their optimizers must keep "
                    "the same moments; give both the same optimizer_name and implementation",
                    first.name, param.name);
        storage.keep(moments, [&](const Param& param) { return kept_of(param).group; });
    };
    for (std::deque<Storage>* storages : {&storages_, &elsewhere_})
        for (Storage& storage : *storages) keep_of(storage);
}

int64_t Parameters::full_state_bytes() const {
    int64_t bytes = 0;
    for (const Storage* storage : model_) {
        int64_t of_element = size_of(storage->master_type());
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

int64_t Parameters::compute_bytes() const {
    int64_t bytes = 0;
    for (const Storage& storage : storages_)
        if (keeps_compute(storage, types_)) bytes += bytes_of(storage, storage.w.dtype);
    return bytes;
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
    b.master = master_bytes(storages_, true);
    if (!types_.offloads_master()) b.master += master_bytes(storages_, false);
    b.compute = compute_bytes();
    if (with_optimizer) {
        for (const Storage& storage : storages_) b.gradients += gradient_bytes(storage);
        if (!types_.offload) b.moments = moment_bytes();
    }
    return b;
}

Parameters::Bytes Parameters::offloaded_bytes() const {
    Bytes b;
    if (types_.offloads_master()) b.master = master_bytes(storages_, false);
    if (types_.offload) b.moments = moment_bytes();
    return b;
}

void Parameters::allocate(bool with_optimizer, const Device& device) {
    const Bytes b = bytes(with_optimizer);
    const Memory &memory = device.memory(), &host = device.staging();
    device_ = &device;
    const auto all = [](const Buffer& buffer) { return std::span(buffer.data(), size_t(buffer.bytes())); };
    const auto for_each = [&](auto&& each) { in_order_of_memory(storages_, places_.size(), each); };
    master_ = Buffer(master_bytes(storages_, false), "weights", types_.offloads_master() ? host : memory);
    exact_ = Buffer(master_bytes(storages_, true), "exact weights", memory);
    if (b.compute > 0) compute_ = Buffer(b.compute, "weights in the compute type", memory);
    for_each([&, masters = Layout(master_), exact = Layout(exact_),
              computes = Layout(compute_)](Storage& storage) mutable {
        storage.master = (storage.is_exact() ? exact : masters).next(storage, storage.master_type());
        if (keeps_compute(storage, types_)) storage.compute = computes.next(storage, storage.w.dtype);
        if (!storage.is_gathered()) storage.w = storage.compute ? storage.compute : storage.master;
    });
    owned_state_ = {all(master_)};
    if (!with_optimizer) return;
    gradient_ = Buffer(b.gradients, "gradients", memory);
    for_each([&, gradients = Layout(gradient_)](Storage& storage) mutable {
        if (storage.is_frozen()) return;
        storage.gradient = gradients.next(storage, storage.gradient.dtype);
        if (!storage.is_gathered()) storage.g = storage.gradient;
        if (storage.is_partial()) partial_bytes_ = gradients.bytes();
    });
    moments_.resize(most_kept());
    for (size_t i = 0; i < moments_.size(); ++i) {
        moments_[i] = Buffer(moment_bytes(i), "optimizer moments", types_.offload ? host : memory);
        for_each([&, rows = Layout(moments_[i])](Storage& storage) mutable {
            if (i < storage.kept().size()) storage.moments[i] = rows.next(storage, storage.kept()[i].dtype);
        });
        owned_state_.push_back(all(moments_[i]));
    }
}

std::vector<int64_t> Parameters::offloaded_kinds() const {
    std::vector<int64_t> all;
    for (size_t i = 0; types_.offload && i < most_kept(); ++i) all.push_back(moment_bytes(i));
    if (types_.offloads_master()) all.push_back(master_bytes(storages_, false));
    return all;
}

Tensor Parameters::gradients() const {
    const Dtype acc = types_.accumulate();
    require(std::ranges::none_of(storages_, has_bf16_gradient), "gradients of two types are not one vector");
    if (gradient_.bytes() == 0) return {};
    return {gradient_.data(), acc, {gradient_.bytes() / size_of(acc)}};
}

Tensor Parameters::partial_gradients() const {
    const Dtype acc = types_.accumulate();
    return {gradient_.data(), acc, {partial_bytes_ / size_of(acc)}};
}

std::array<Tensor, 3> Parameters::gradients_of(size_t unit, size_t sharding) const {
    const Tensor none(nullptr, types_.accumulate(), {0});
    std::array<Tensor, 3> parts = {none, none, Tensor(nullptr, Dtype::bf16, {0})};
    const Unit& range = units_[unit];
    for (size_t i = range.first; i < range.first + range.count; ++i) {
        const Storage& storage = storages_[i];
        if (storage.sharding() != sharding || storage.is_frozen()) continue;
        Tensor& part = parts[storage.is_partial() ? 0 : has_bf16_gradient(storage) ? 2 : 1];
        const Dtype type = storage.gradient.dtype;
        // storages of a kind are adjacent
        part = Tensor(part.count() == 0 ? storage.gradient.data : part.data, type,
                      {part.count() + gradient_bytes(storage) / size_of(type)});
    }
    return parts;
}

void Parameters::initialise(Exec& exec, const Kernels& kernels, uint64_t seed) {
    Exec host;
    host.threads = exec.threads;
    for (const Storage& storage : storages_) {
        const bool on_host = master_device(storage).is_host();
        for (const OwnedRun& run : storage.runs()) {
            const Tensor rows = Storage::rows_of(run, storage.master);
            (on_host ? cpu_kernels() : kernels)
                .draw(on_host ? host : exec, rows, run.param->init, seed,
                      place_in(*run.param, run.first_row, run.first_col, rows.cols()));
        }
    }
    exec.queue->finish();
}

void Parameters::initialise(uint64_t seed, int threads) {
    require(device_->is_host(), "weights on a device are drawn there");
    Exec exec;
    exec.threads = threads;
    initialise(exec, cpu_kernels(), seed);
}

// One call for neighbours in memory.
void Parameters::begin_gradients(Exec& exec, const Kernels& kernels) const {
    int64_t first = 0, end = 0;
    const auto zero = [&] {
        if (end > first) kernels.zero(exec, Tensor(gradient_.data() + first, Dtype::u8, {end - first}));
    };
    for_each_in_memory([&](const Storage& storage) {
        const int64_t bytes = gradient_bytes(storage);
        if (storage.sums_products() && !storage.is_gathered()) {
            storage.forget_gradient();
            zero();
            first = end + bytes;
        }
        end += bytes;
    });
    zero();
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
        if (storage.compute && !storage.is_8_bit()) kernels.cast(exec, storage.compute, storage.master);
}

OwnedRows Parameters::rows_of(const Storage& storage, const OwnedRun& run) {
    const auto rows = [&](Tensor of) { return of ? Storage::rows_of(run, of) : Tensor{}; };
    OwnedRows owned = {.param = *run.param,
                       .first_row = run.first_row,
                       .first_col = run.first_col,
                       .master = rows(storage.master),
                       .gradient = rows(storage.gradient),
                       .compute = storage.is_8_bit() ? Tensor{} : rows(storage.compute),
                       .moments = {}};
    for (size_t i = 0; i < storage.moments.size(); ++i) owned.moments[i] = rows(storage.moments[i]);
    if (storage.has_one_scales()) {
        Tensor& weights = owned.compute ? owned.compute : owned.master;
        weights.largest = one_scale_of(storage, *run.param).largest.data;
        weights.largest_cols = weights.cols();
    }
    return owned;
}

void Parameters::for_each_owned(EachRows each) const {
    for (const Storage& storage : storages_)
        if (storage.trainable())
            for (const OwnedRun& run : storage.runs()) each(rows_of(storage, run));
}

}  // namespace coeus
