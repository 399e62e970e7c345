// SPDX-License-Identifier: Apache-2.0
// Parameters: all parameters of the model in the order in which it was built, and the memory for the part
// that this rank owns. fsdp.hpp has the memory for weights gathered from other ranks.
#pragma once

#include "coeus/base/function_ref.hpp"
#include "coeus/kernels/kernels.hpp"
#include "coeus/state/storage.hpp"
#include "coeus/state/unit_places.hpp"

#include <array>
#include <deque>
#include <optional>
#include <span>

namespace coeus {

/// The storages [first, first + count), which are gathered together: those of a block, of the embedding, ...
struct Unit {
    size_t first = 0, count = 0;
    int uses = 1;  ///< in a micro-batch's backward; 2 for a table that is also the output projection
};

/// Rows of one parameter, as the optimizer updates them. All tensors are dense and have the same number of
/// elements.
struct OwnedRows {
    static constexpr size_t most_moments = 4;

    const Param& param;
    int64_t first_row, first_col;  ///< position in the parameter's global shape
    Tensor master, gradient;
    Tensor
        compute;  ///< the weights in the compute type, if they are kept in that type as well, not in 8 bits
    std::array<Tensor, most_moments> moments;  ///< in the order of Storage::kept(); the rest are absent

    /// Where the elements are in the whole parameter.
    ElementPlace place() const;
};
using EachRows = FunctionRef<void(const OwnedRows&)>;

class Parameters {
public:
    explicit Parameters(const StateTypes& types, const ModelPlace& place = {})
        : types_(types), places_{place.dense}, experts_place_(place.experts) {}
    Parameters(const Parameters&) = delete;
    Parameters& operator=(const Parameters&) = delete;

    const StateTypes& types() const { return types_; }
    /// Adds a sharding besides the dense one, before a parameter refers to it. Returns its number.
    size_t add_sharding(const ShardPlace& place);
    /// The places, by the number of the sharding.
    const std::vector<ShardPlace>& places() const { return places_; }
    /// The place in the dense sharding.
    const ShardPlace& place() const { return places_[dense_sharding]; }

    /// Begins a unit, to which the storages that are added next belong. Returns its number. `uses`: see Unit.
    size_t begin_unit(int uses = 1);
    /// Declares that a unit is used right after another one, besides those with adjacent numbers: a table
    /// that the head uses again, after the last block.
    void use_after(size_t unit, size_t other) { other_neighbours_.emplace_back(unit, other); }
    /// Pairs of units that are used one after the other, so that both are gathered at the same time; with
    /// `distance` 2 also pairs with one unit between them.
    Neighbours neighbours(int distance = 1) const;
    /// Sets whether the parameters added next are this rank's (as at first) or another pipeline rank's, which
    /// are only listed in model().
    void set_here(bool here) { here_ = here; }
    /// Declares one parameter, or several stacked ones. The reference remains valid. Allocates no memory yet.
    Storage& add(Param param) { return add(std::vector<Param>{std::move(param)}); }
    Storage& add(std::vector<Param> params);
    /// The number of a sharding that gives every rank all of a parameter.
    size_t whole_sharding();
    /// The number of the sharding of experts' matrices: the dense one if this rank's place is the same in
    /// both.
    size_t expert_sharding();
    /// The same if a parameter refers to it; else nothing.
    std::optional<size_t> expert_sharding_in_use() const { return experts_; }
    /// This rank's place in it.
    const ShardPlace& expert_place() const { return experts_place_; }

    /// The storages of all ranks, in the order in which the model was built, which is the same on all ranks.
    /// Those of other ranks have no memory.
    const std::vector<const Storage*>& model() const { return model_; }
    const std::deque<Storage>& storages() const { return storages_; }
    std::deque<Storage>& storages() { return storages_; }
    /// Calls `each` for this rank's storages in their order in every buffer: first those whose gradients
    /// still have to be summed over the tensor-parallel ranks, then those of each sharding, first the ones
    /// with gradients in the accumulation type.
    void for_each_in_memory(FunctionRef<void(const Storage&)> each) const;
    const std::vector<Unit>& units() const { return units_; }
    /// Number of elements of the model's parameters, on all ranks together.
    int64_t count() const;
    /// Sets the moments that the optimizer keeps for each parameter of the model, and the parameter's group.
    /// Called before bytes() and allocate(). ConfigError if parameters of one storage would have different
    /// moments.
    struct Kept {
        size_t group;
        std::vector<Moment> moments;
    };
    void keep(FunctionRef<Kept(const Param&)> kept_of);
    /// Bytes of the whole model's weights and moments, on all ranks together, each counted once.
    int64_t full_state_bytes() const;

    /// Bytes of each kind of memory that allocate() allocates.
    struct Bytes {
        int64_t master = 0, compute = 0, gradients = 0, moments = 0;
        int64_t total() const { return master + compute + gradients + moments; }
    };
    /// Bytes on the device.
    Bytes bytes(bool with_optimizer) const;
    /// Bytes in host memory: the offloaded state.
    Bytes offloaded_bytes() const;
    /// Allocates the memory for the part that this rank owns and points the storages at it. w and g of a
    /// storage of which it owns everything are there too. `with_optimizer` false: no gradients and no moments
    /// (generation).
    void allocate(bool with_optimizer, const Device& device = host_device());
    /// The device of that memory; offloaded state is on the host instead.
    const Device& device() const { return *device_; }
    const Device& master_device() const { return types_.offloads_master() ? host_device() : *device_; }
    const Device& master_device(const Storage& storage) const {
        return storage.is_exact() ? *device_ : master_device();
    }
    const Device& moments_device() const { return types_.offload ? host_device() : *device_; }
    /// Bytes of each kind of offloaded state: of every moment, and of the masters.
    std::vector<int64_t> offloaded_kinds() const;
    /// The memory of the weights (in the master type) and of each moment that this rank owns, on whichever
    /// device it is.
    const std::vector<std::span<std::byte>>& owned_state() const { return owned_state_; }
    /// The memory of the weights of exact parameters, on the device.
    std::span<std::byte> exact_state() const { return {exact_.data(), size_t(exact_.bytes())}; }
    /// Sets the initial values of the weights: on the device of the masters, or by the host if they are
    /// offloaded. All devices draw the same bits. Returns after the work is done. Moments are zero after
    /// allocate().
    void initialise(Exec& exec, const Kernels& kernels, uint64_t seed);
    /// The same for weights on the host.
    void initialise(uint64_t seed, int threads);
    /// Sets the moments to zero.
    void clear_moments(Exec& exec, const Kernels& kernels) const;
    /// Converts the master weights to the compute type, if both are kept; called after initialise() or a
    /// load. Weights in 8 bits are those of OneScaleWeights.
    void refresh_compute(Exec& exec, const Kernels& kernels) const;
    /// Calls `each` for the rows that this rank owns of each trainable parameter, run by run, where they are.
    void for_each_owned(EachRows each) const;
    /// The tensors of a run, or of a part of one.
    static OwnedRows rows_of(const Storage& storage, const OwnedRun& run);

    /// Begins the sums of a step: sets the owned gradients to zero, except those of storages of which this
    /// rank owns everything, if they sum products; these count as zero.
    void begin_gradients(Exec& exec, const Kernels& kernels) const;
    /// All owned gradients as one vector, including gaps for alignment, which stay zero. LogicError if they
    /// have two types.
    Tensor gradients() const;
    /// The owned gradients of one unit in one sharding, each part a vector with its gaps: those that are
    /// partial, the others in the accumulation type, and those in bfloat16.
    std::array<Tensor, 3> gradients_of(size_t unit, size_t sharding = dense_sharding) const;
    /// Those that still have to be summed over the tensor-parallel ranks, as one vector.
    Tensor partial_gradients() const;

private:
    int64_t compute_bytes() const;
    int64_t moment_bytes() const;
    int64_t moment_bytes(size_t number) const;
    size_t most_kept() const;

    StateTypes types_;
    std::vector<ShardPlace> places_;
    ShardPlace experts_place_;
    std::optional<size_t> whole_, experts_;
    std::deque<Storage> storages_, elsewhere_;
    std::vector<const Storage*> model_;
    bool here_ = true;
    std::vector<Unit> units_;
    Neighbours other_neighbours_;
    const Device* device_ = &host_device();
    Buffer master_, exact_, compute_, gradient_;
    std::vector<Buffer> moments_;  // the first moments of all storages, the second ones, ...
    std::vector<std::span<std::byte>> owned_state_;
    int64_t partial_bytes_ = 0;  // of gradient_
};

}  // namespace coeus
