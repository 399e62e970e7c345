// SPDX-License-Identifier: Apache-2.0
// Parameters: everything that is trained on this rank, in the order in which the model was built, and the
// memory of what the rank owns of it. fsdp.hpp has the memory of what is gathered from the others.
#pragma once

#include "coeus/base/function_ref.hpp"
#include "coeus/kernels/kernels.hpp"
#include "coeus/state/storage.hpp"
#include "coeus/state/unit_places.hpp"

#include <array>
#include <deque>
#include <span>

namespace coeus {

/// Storages [first, first + count) that are gathered together: those of a block, of the embedding, ...
struct Unit {
    size_t first = 0, count = 0;
    int uses = 1;  ///< in the backward of a micro-batch: 2 for a table that is also the output projection
};

/// Rows of one parameter, as the optimizer updates them. Dense, all of equal count.
struct OwnedRows {
    static constexpr size_t most_moments = 4;

    const Param& param;
    int64_t first_row, first_col;  ///< in the parameter's global shape
    Tensor master, gradient;
    Tensor compute;                            ///< where the weights are kept in another type as well
    std::array<Tensor, most_moments> moments;  ///< in the order of Storage::kept(); beyond: absent

    /// Where the elements lie in the whole parameter.
    ElementPlace place() const;
};
using EachRows = FunctionRef<void(const OwnedRows&)>;

class Parameters {
public:
    /// `place`: this rank's in the dense sharding.
    explicit Parameters(const StateTypes& types, const ShardPlace& place = {})
        : types_(types), places_{place} {}
    Parameters(const Parameters&) = delete;
    Parameters& operator=(const Parameters&) = delete;

    const StateTypes& types() const { return types_; }
    /// A sharding beside the dense one, before a parameter says that it is its own. Returns its number.
    size_t add_sharding(const ShardPlace& place);
    /// In the order of their numbers.
    const std::vector<ShardPlace>& places() const { return places_; }
    /// In the dense sharding.
    const ShardPlace& place() const { return places_[dense_sharding]; }

    /// Begins a unit: what is added from here on. Returns its number. `uses`: see Unit.
    size_t begin_unit(int uses = 1);
    /// Says that a unit is used right after another one, beside those that follow each other by their
    /// numbers: a table that the head uses again, after the last block.
    void use_after(size_t unit, size_t other) { other_neighbours_.emplace_back(unit, other); }
    /// Units that are used one after the other, so that both are gathered at the same time.
    Neighbours neighbours() const;
    /// Whether what is added from here on is this rank's (at first it is), or another pipeline rank's: then
    /// it is only listed in model().
    void set_here(bool here) { here_ = here; }
    /// Declares one parameter, or several stacked ones. The reference stays valid. No memory yet.
    Storage& add(Param param) { return add(std::vector<Param>{std::move(param)}); }
    Storage& add(std::vector<Param> params);

    /// Of every rank, in the order in which the model was built, the same on all; without memory where they
    /// are not this rank's.
    const std::vector<const Storage*>& model() const { return model_; }
    const std::deque<Storage>& storages() const { return storages_; }
    std::deque<Storage>& storages() { return storages_; }
    /// The same in the order in which they lie in every buffer: those first whose gradients are still to be
    /// summed over the tensor-parallel ranks, then those of each sharding.
    void for_each_in_memory(FunctionRef<void(const Storage&)> each) const;
    const std::vector<Unit>& units() const { return units_; }
    /// Elements of the model's parameters, those of all ranks.
    int64_t count() const;
    /// Says what the optimizer keeps of each parameter of the model, and in which of its groups it is; before
    /// bytes() and allocate(). ConfigError where parameters of one storage would not be kept alike.
    struct Kept {
        size_t group;
        std::vector<Moment> moments;
    };
    void keep(FunctionRef<Kept(const Param&)> kept_of);
    /// Bytes of the whole model's weights and moments, those of all ranks, each once.
    int64_t full_state_bytes() const;

    /// Bytes of each kind of memory that allocate() will take.
    struct Bytes {
        int64_t master = 0, compute = 0, gradients = 0, moments = 0;
        int64_t total() const { return master + compute + gradients + moments; }
    };
    /// Of the device.
    Bytes bytes(bool with_optimizer) const;
    /// Of the host beside it: what is offloaded.
    Bytes offloaded_bytes() const;
    /// Gets the memory of what this rank owns and points the storages at it. Where it owns all of one, w and
    /// g are there too. `with_optimizer` false: no gradients, no moments (generation).
    void allocate(bool with_optimizer, const Device& device = host_device());
    /// Where that memory is, but for what is offloaded.
    const Device& device() const { return *device_; }
    const Device& master_device() const { return types_.offloads_master() ? host_device() : *device_; }
    const Device& moments_device() const { return types_.offload ? host_device() : *device_; }
    /// Bytes of each kind of state that is offloaded: of every moment, and of the masters.
    std::vector<int64_t> offloaded_kinds() const;
    /// What this rank owns of weights (in the master type) and of each moment, wherever that is.
    const std::vector<std::span<std::byte>>& owned_state() const { return owned_state_; }
    /// Initial values; the moments are zero.
    void initialise(uint64_t seed, int threads);
    /// The moments as initialise() leaves them.
    void clear_moments(Exec& exec, const Kernels& kernels) const;
    /// The weights in the compute type, where these are kept beside the master, after initialise() or a load.
    void refresh_compute(Exec& exec, const Kernels& kernels) const;
    /// What this rank owns of each trainable parameter, run by run, where it lies.
    void for_each_owned(EachRows each) const;
    /// The rows of a run, or of a part of one.
    static OwnedRows rows_of(const Storage& storage, const OwnedRun& run);

    /// All owned gradients as one vector, gaps for alignment included (they stay zero).
    Tensor gradients() const { return gradients_; }
    /// The part of gradients() that one unit has in one sharding: the partial ones, and the others.
    std::array<Tensor, 2> gradients_of(size_t unit, size_t sharding = dense_sharding) const;
    /// The beginning of it: those that are still to be summed over the tensor-parallel ranks.
    Tensor partial_gradients() const { return gradients_.slice_rows(0, partial_count_); }

private:
    int64_t compute_bytes() const;
    int64_t moment_bytes() const;
    int64_t moment_bytes(size_t number) const;
    size_t most_kept() const;

    StateTypes types_;
    std::vector<ShardPlace> places_;
    std::deque<Storage> storages_, elsewhere_;
    std::vector<const Storage*> model_;
    bool here_ = true;
    std::vector<Unit> units_;
    Neighbours other_neighbours_;
    const Device* device_ = &host_device();
    Buffer master_, compute_, gradient_;
    std::vector<Buffer> moments_;  // the first of every storage, the second ones, ...
    std::vector<std::span<std::byte>> owned_state_;
    Tensor gradients_;
    int64_t partial_count_ = 0;
};

}  // namespace coeus
