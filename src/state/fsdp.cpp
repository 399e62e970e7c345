// SPDX-License-Identifier: Apache-2.0
#include "coeus/state/fsdp.hpp"

#include "coeus/device/named_range.hpp"
#include "coeus/state/one_scale_weights.hpp"
#include "coeus/state/unit_places.hpp"

#include <algorithm>

namespace coeus {

namespace {

// This rank's part of a buffer that all ranks share equally.
Tensor share_of(Tensor all, const Communicator& ranks) {
    const int64_t share = all.count() / ranks.size();
    return all.slice_rows(ranks.rank() * share, share);
}

}  // namespace

// The places of the units in a buffer, and which units are there.
class Gathered::Places {
public:
    struct State {
        int64_t first = 0, bytes = 0;  // within the buffer
        bool valid = false;            // true if the unit is in its place, or on the way there
        int leases = 0;
        bool waits = false;  // gradients of a first half, to which those of the other one are added
        Pending pending;     // work that fills or empties the place
    };

    // `what`: Storage::w or Storage::g. `ahead`: how many units besides one in use are there at the same
    // time, 1 or 2.
    Places(const Parameters& parameters, Tensor Storage::*what, Keep keep, int ahead)
        : parameters_(parameters), what_(what) {
        for (const Unit& unit : parameters.units()) {
            State& state = states.emplace_back();
            for (size_t i = unit.first; i < unit.first + unit.count; ++i)
                state.bytes += bytes_of(parameters.storages()[i]);
        }
        if (keep == Keep::all)
            stack();
        else
            take_turns(ahead);
    }

    int64_t bytes() const { return bytes_; }
    void allocate(const std::string& what, const Memory& memory) { buffer_ = Buffer(bytes_, what, memory); }

    // The gathered buffer of one storage, [ranks * rows_per_shard, cols]; empty for a storage that has no
    // place here.
    Tensor of(size_t unit, size_t storage) const {
        std::byte* at = buffer_.data() + states[unit].first;
        for (size_t i = parameters_.units()[unit].first; i < storage; ++i)
            at += bytes_of(parameters_.storages()[i]);
        const Storage& s = parameters_.storages()[storage];
        return Tensor(at, (s.*what_).dtype, {count_of(s)});
    }

    // Removes the units that overlap a unit's place. None of them may have a lease.
    void make_room(size_t unit) {
        State& mine = states[unit];
        for (size_t other = 0; other < states.size(); ++other) {
            State& theirs = states[other];
            if (other == unit || theirs.first >= mine.first + mine.bytes ||
                mine.first >= theirs.first + theirs.bytes)
                continue;
            theirs.pending.join();
            require(theirs.leases == 0, "a unit would be gathered over one that is in use");
            require(!theirs.waits, "gradients would be lost to which another half is added");
            theirs.valid = false;
        }
    }
    bool has_room(size_t unit) const {
        const State& mine = states[unit];
        return std::none_of(states.begin(), states.end(), [&](const State& theirs) {
            return &theirs != &mine && theirs.leases > 0 && theirs.first < mine.first + mine.bytes &&
                   mine.first < theirs.first + theirs.bytes;
        });
    }

    std::vector<State> states;  // by unit

private:
    // Elements of a storage; 0 if it is not gathered, or is frozen and has no gradient.
    int64_t count_of(const Storage& storage) const {
        return storage.is_gathered() && storage.*what_ ? storage.padded_count() : 0;
    }
    int64_t bytes_of(const Storage& storage) const {
        return padded_bytes(count_of(storage) * size_of((storage.*what_).dtype));
    }

    void stack() {
        for (State& state : states) {
            state.first = bytes_;
            bytes_ += state.bytes;
        }
    }

    void take_turns(int ahead) {
        std::vector<int64_t> bytes;
        for (const State& state : states) bytes.push_back(state.bytes);
        const UnitPlaces places = place_units(bytes, parameters_.neighbours(ahead));
        bytes_ = places.bytes;
        for (size_t u = 0; u < states.size(); ++u) states[u].first = places.first[u];
    }

    const Parameters& parameters_;
    Tensor Storage::*what_;
    Buffer buffer_;
    int64_t bytes_ = 0;
};

Gathered::Gathered(Parameters& parameters, const GatherOptions& options)
    : parameters_(parameters), options_(options) {
    expect_uses();
    for (const Unit& unit : parameters.units()) {
        const auto any = [&](const auto& is) {
            const auto first = parameters.storages().begin() + int64_t(unit.first);
            return std::any_of(first, first + int64_t(unit.count), is);
        };
        is_gathered_.push_back(any([](const Storage& storage) { return storage.is_gathered(); }));
        is_scattered_.push_back(
            any([](const Storage& storage) { return storage.is_gathered() && storage.trainable(); }));
    }
    if (std::ranges::find(is_gathered_, true) == is_gathered_.end()) return;
    weights_ = std::make_unique<Places>(parameters, &Storage::w, options.weights,
                                        std::max(options.prefetch, options.in_use));
    gradients_ = std::make_unique<Places>(parameters, &Storage::g, options.gradients, options.in_use);
}

bool Gathered::is_gathered(size_t unit) const {
    return is_gathered_[unit];
}

bool Gathered::is_scattered(size_t unit) const {
    return is_scattered_[unit];
}

// Work in progress refers to the places, so the streams, which complete their work, end before these. Nobody
// waits for the work any more.
Gathered::~Gathered() {
    for (const auto* places : {&weights_, &gradients_})
        if (*places)
            for (Places::State& state : (*places)->states) state.pending.forget();
    reduction_.forget();
}

Gathered::Bytes Gathered::bytes() const {
    const int64_t sums = padded_bytes(most_summed() * size_of(Dtype::f32));
    if (!weights_) return {.sums = sums};
    return {weights_->bytes(), gradients_->bytes(), sums};
}

// The most elements of pieces in float32; 0 if no gradient in bfloat16 is summed.
int64_t Gathered::most_summed() const {
    int64_t most = 0;
    const auto add = [&](int64_t count, int64_t ranks) {
        most = std::max(most, std::min(count, 2 * piece_of(ranks) * ranks));
    };
    for (size_t u = 0; u < parameters_.units().size(); ++u) {
        const Unit& unit = parameters_.units()[u];
        for (size_t sharding = 0; sharding < parameters_.places().size(); ++sharding) {
            int64_t of_shards = 0, of_replicas = 0;
            for (size_t i = unit.first; i < unit.first + unit.count; ++i) {
                const Storage& storage = parameters_.storages()[i];
                if (storage.g.dtype != Dtype::bf16 || storage.sharding() != sharding) continue;
                if (storage.is_gathered())
                    of_shards += storage.padded_count();
                else if (storage.place().replicas > 1)
                    of_replicas += padded_bytes(storage.gradient.bytes()) / size_of(Dtype::bf16);
            }
            add(of_shards, parameters_.places()[sharding].fsdp);
            add(of_replicas, 1);
        }
    }
    return most;
}

// The elements of a rank's part that are summed at a time. Messages begin where they are aligned.
int64_t Gathered::piece_of(int64_t ranks) const {
    constexpr int64_t aligned = 64;
    const int64_t most = options_.most_summed / 2 / ranks;
    return most > aligned ? most / aligned * aligned : std::max<int64_t>(1, most);
}

void Gathered::allocate(const std::vector<GatherRanks>& ranks, Stream::Mode streams, Exec& compute,
                        const Kernels& kernels) {
    const std::vector<ShardPlace>& places = parameters_.places();
    require(ranks.size() == places.size(), "each sharding has its communicators");
    ranks_.clear();
    for (size_t i = 0; i < ranks.size(); ++i) {
        require(ranks[i].gather.size() == places[i].fsdp && ranks[i].reduce.size() == places[i].fsdp,
                "the communicators of gathered weights are not those of their shards");
        ranks_.push_back(ranks[i]);
    }
    kernels_ = &kernels;
    compute_ = &compute;
    gather_stream_ = std::make_unique<Stream>(streams, compute, Priority::high);
    reduce_stream_ = std::make_unique<Stream>(streams, compute, Priority::high);
    if (const int64_t sums = bytes().sums; sums > 0) {
        sums_ = Buffer(sums, "gradients while they are summed", compute.device->memory());
        convert_ = std::make_unique<Exec>(*compute.device, Priority::high);
        for (auto& summed : summed_) summed = compute.device->make_event();
    }
    if (!weights_) return;
    weights_->allocate("gathered weights", compute.device->memory());
    gradients_->allocate("unreduced gradients", compute.device->memory());
    for (size_t u = 0; u < parameters_.units().size(); ++u)
        for_each_gathered(u, [&](size_t i, Storage& storage) {
            storage.w = Tensor(weights_->of(u, i).data, storage.w.dtype, storage.shape());
            if (storage.trainable())
                storage.g = Tensor(gradients_->of(u, i).data, storage.g.dtype, storage.shape());
        });
}

template <class Each>
void Gathered::for_each_gathered(size_t u, const Each& each) const {
    const Unit& unit = parameters_.units()[u];
    for (size_t i = unit.first; i < unit.first + unit.count; ++i)
        if (Storage& storage = parameters_.storages()[i]; storage.is_gathered()) each(i, storage);
}

template <class Each>
void Gathered::for_each_gathered(size_t u, size_t sharding, const Each& each) const {
    for_each_gathered(u, [&](size_t i, const Storage& storage) {
        if (storage.sharding() == sharding) each(i, storage);
    });
}

void Gathered::gather(Exec& exec, size_t u) {
    const NamedRange range("{}", name_of(Exchange::gather_weights));
    for (size_t sharding = 0; sharding < ranks_.size(); ++sharding) {
        const Communicator& ranks = ranks_[sharding].gather;
        ranks.grouped(exec, [&] {
            for_each_gathered(u, sharding, [&](size_t i, const Storage& storage) {
                const Tensor all = weights_->of(u, i), own = share_of(all, ranks);
                const int64_t count = storage.shard_shape().count();
                const Tensor from = storage.compute ? storage.compute : storage.master;
                if (count > 0 && storage.is_8_bit())
                    quantize_owned(exec, *kernels_, storage,
                                   Tensor(own.data, own.dtype, storage.shard_shape()));
                else if (count > 0)
                    kernels_->cast(exec, own.slice_rows(0, count), from.reshape({count}));
                ranks.all_gather(exec, all, own);
            });
        });
    }
}

void Gathered::scatter(Exec& exec, size_t u) {
    const NamedRange range("{}", name_of(Exchange::reduce_gradients));
    const auto is_summed_as_it_is = [](const Storage& storage) {
        return storage.trainable() && storage.g.dtype != Dtype::bf16;
    };
    for (size_t sharding = 0; sharding < ranks_.size(); ++sharding) {
        const Communicator& ranks = ranks_[sharding].reduce;
        ranks.grouped(exec, [&] {
            for_each_gathered(u, sharding, [&](size_t i, const Storage& storage) {
                if (!is_summed_as_it_is(storage)) return;
                const Tensor all = gradients_->of(u, i);
                ranks.reduce_scatter(exec, share_of(all, ranks), all);
            });
        });
        scatter_in_float32(exec, u, sharding);
    }
    for_each_gathered(u, [&](size_t i, const Storage& storage) {
        const int64_t count = storage.shard_shape().count();
        if (!is_summed_as_it_is(storage) || count == 0) return;
        const Tensor own = share_of(gradients_->of(u, i), ranks_[storage.sharding()].reduce);
        kernels_->add(exec, storage.gradient.reshape({count}), own.slice_rows(0, count));
    });
}

// NCCL would add numbers in bfloat16 in bfloat16. `count` elements of each rank's part are converted in
// pieces [ranks, n], each while the one before is summed.
template <class Convert, class Sum>
void Gathered::sum_in_pieces(Exec& exec, int64_t ranks, int64_t count, const Convert& convert,
                             const Sum& sum) {
    if (count == 0) return;
    const int64_t most = piece_of(ranks);
    Queue &sums = *exec.queue, &conversions = *convert_->queue;
    summed_[0]->record(sums);  // the gradients are there, and nothing uses the buffer
    conversions.wait_for(*summed_[0]);
    size_t half = 0;
    for (int64_t first = 0; first < count; first += most, half ^= 1) {
        const Tensor piece(sums_.data() + int64_t(half) * most * ranks * size_of(Dtype::f32), Dtype::f32,
                           {ranks, std::min(most, count - first)});
        if (first >= 2 * most) conversions.wait_for(*summed_[half]);
        convert(*convert_, piece, first);
        sums.wait_for(conversions, conversions.mark());
        sum(piece, first);
        summed_[half]->record(sums);
    }
}

// The gradients of a unit follow each other in each rank's part of the pieces.
template <class Each>
void Gathered::for_each_of_piece(size_t u, size_t sharding, int64_t first, int64_t count,
                                 const Each& each) const {
    int64_t begin = 0;
    for_each_gathered(u, sharding, [&](size_t i, const Storage& storage) {
        if (storage.g.dtype != Dtype::bf16) return;
        const int64_t share = storage.padded_count() / storage.place().fsdp, from = std::max(first, begin),
                      to = std::min(first + count, begin + share);
        if (from < to) each(i, storage, from - begin, from - first, to - from);
        begin += share;
    });
}

void Gathered::scatter_in_float32(Exec& exec, size_t u, size_t sharding) {
    const Communicator& ranks = ranks_[sharding].reduce;
    int64_t count = 0;
    for_each_gathered(u, sharding, [&](size_t, const Storage& storage) {
        if (storage.g.dtype == Dtype::bf16) count += storage.padded_count() / ranks.size();
    });
    const auto convert = [&](Exec& on, Tensor piece, int64_t first) {
        for_each_of_piece(u, sharding, first, piece.cols(),
                          [&](size_t i, const Storage& storage, int64_t from, int64_t to, int64_t n) {
                              const Tensor parts = gradients_->of(u, i).reshape(
                                  {ranks.size(), storage.padded_count() / ranks.size()});
                              kernels_->cast(on, piece.slice_cols(to, n), parts.slice_cols(from, n));
                          });
    };
    const auto sum = [&](Tensor piece, int64_t first) {
        const Tensor flat = piece.reshape({piece.count()}), own = share_of(flat, ranks);
        ranks.reduce_scatter(exec, own, flat);
        for_each_of_piece(u, sharding, first, piece.cols(),
                          [&](size_t, const Storage& storage, int64_t to, int64_t from, int64_t n) {
                              const int64_t owned = storage.shard_shape().count(),
                                            here = std::min(n, owned - to);
                              if (here > 0)
                                  kernels_->add(exec, storage.gradient.reshape({owned}).slice_rows(to, here),
                                                own.slice_rows(from, here));
                          });
    };
    sum_in_pieces(exec, ranks.size(), count, convert, sum);
}

void Gathered::sum_over_replicas(Exec& exec, size_t unit) {
    const NamedRange range("{}", name_of(Exchange::reduce_gradients));
    for (size_t sharding = 0; sharding < ranks_.size(); ++sharding)
        for (const Tensor& gradients : parameters_.gradients_of(unit, sharding))
            if (const Communicator& replicas = ranks_[sharding].replicas; gradients.dtype == Dtype::bf16)
                sum_in_float32(exec, replicas, gradients);
            else
                replicas.all_reduce(exec, gradients);
}

void Gathered::sum_in_float32(Exec& exec, const Communicator& ranks, Tensor gradients) {
    if (ranks.size() == 1) return;
    const auto part = [&](Tensor piece, int64_t first) {
        return gradients.slice_rows(first, piece.count()).reshape(piece.shape);
    };
    sum_in_pieces(
        exec, 1, gradients.count(),
        [&](Exec& on, Tensor piece, int64_t first) { kernels_->cast(on, piece, part(piece, first)); },
        [&](Tensor piece, int64_t first) {
            ranks.all_reduce(exec, piece);
            kernels_->cast(exec, part(piece, first), piece);
        });
}

void Gathered::prefetch(size_t unit) {
    if (!is_gathered(unit)) return;
    Places::State& state = weights_->states[unit];
    if (state.valid || !weights_->has_room(unit)) return;
    weights_->make_room(unit);
    state.valid = true;
    state.pending = gather_stream_->run([this, unit, &exec = gather_stream_->exec()] { gather(exec, unit); });
}

void Gathered::hold_weights(size_t unit) {
    if (!is_gathered(unit)) return;
    Places::State& state = weights_->states[unit];
    const ObservedExchange wait(*compute_, Exchange::gather_weights, double(state.bytes));
    prefetch(unit);
    require(state.valid, "there is no room for the weights of a unit");
    state.pending.join();
    ++state.leases;
}

void Gathered::release_weights(size_t unit) {
    if (is_gathered(unit)) --weights_->states[unit].leases;
}

bool Gathered::is_in_use(size_t unit) const {
    return !is_gathered(unit) || weights_->states[unit].leases > 0;
}

void Gathered::hold_gradients(size_t unit) {
    if (!is_scattered(unit)) return;
    Places::State& state = gradients_->states[unit];
    if (!state.valid) {
        {
            const ObservedExchange wait(*compute_, Exchange::reduce_gradients);
            gradients_->make_room(unit);
            state.pending.join();
        }
        for_each_gathered(unit, [&](size_t i, const Storage& storage) {
            if (storage.sums_products())
                storage.forget_gradient();
            else if (storage.trainable())
                kernels_->zero(*compute_, gradients_->of(unit, i));
        });
        state.valid = true;
    }
    state.waits = false;
    ++state.leases;
}

// Submits the reduction of a unit to the stream.
void Gathered::reduce_later(size_t unit, bool complete) {
    const Unit& storages = parameters_.units()[unit];
    for (size_t i = storages.first; i < storages.first + storages.count; ++i)
        parameters_.storages()[i].zero_forgotten(*compute_, *kernels_);
    const ObservedExchange wait(*compute_, Exchange::reduce_gradients);  // the wait if the stream is eager
    if (is_scattered(unit) && gradients_->states[unit].valid) {
        gradients_->states[unit].valid = gradients_->states[unit].waits = false;
        gradients_->states[unit].pending =
            reduce_stream_->run([this, unit, &exec = reduce_stream_->exec()] { scatter(exec, unit); });
    }
    if (complete) {
        uses_left_[unit] = 0;
        reduction_.forget();  // the stream keeps the order
        reduction_ = reduce_stream_->run(
            [this, unit, &exec = reduce_stream_->exec()] { sum_over_replicas(exec, unit); });
    }
}

void Gathered::release_gradients(size_t unit) {
    if (is_scattered(unit) && --gradients_->states[unit].leases > 0) return;
    if (other_half_follows_) {
        if (is_scattered(unit)) gradients_->states[unit].waits = true;
        return;
    }
    const bool complete = last_uses_ && --uses_left_[unit] == 0;
    const bool stays = !is_scattered(unit) || options_.gradients == Keep::all;
    if (complete || !stays) reduce_later(unit, complete);
}

void Gathered::give_back_gradients(size_t unit) noexcept {
    if (is_scattered(unit)) --gradients_->states[unit].leases;
    gave_back_ = true;
}

void Gathered::end_use(size_t unit) {
    if (last_uses_ && --uses_left_[unit] == 0) reduce_later(unit, true);
}

void Gathered::finish_gradients() {
    require(!gave_back_, "a lease of gradients ended without a reduction");
    for (size_t unit = uses_left_.size(); unit-- > 0;)
        if (uses_left_[unit] > 0) reduce_later(unit, true);
    const ObservedExchange wait(*compute_, Exchange::reduce_gradients);
    finish_streams();
    last_uses_ = other_half_follows_ = false;
    expect_uses();
}

void Gathered::finish_streams() {
    reduction_.join();
    for (const auto* places : {&weights_, &gradients_})
        if (*places)
            for (Places::State& state : (*places)->states) state.pending.join();
}

void Gathered::expect_uses() {
    uses_left_.clear();
    for (const Unit& unit : parameters_.units()) uses_left_.push_back(unit.uses);
}

void Gathered::forget_weights() {
    if (!weights_) return;
    for (Places::State& state : weights_->states) {
        require(state.leases == 0, "weights change while they are in use");
        state.pending.join();
        state.valid = false;
    }
}

}  // namespace coeus
