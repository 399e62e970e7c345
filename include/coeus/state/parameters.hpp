// SPDX-License-Identifier: Apache-2.0
// Parameters: everything that is trained, in the order in which the model was built, and its memory.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/kernels/kernels.hpp"
#include "coeus/state/storage.hpp"

#include <deque>

namespace coeus {

class Parameters {
public:
    explicit Parameters(const StateTypes& types) : types_(types) {}
    Parameters(const Parameters&) = delete;
    Parameters& operator=(const Parameters&) = delete;

    const StateTypes& types() const { return types_; }
    /// Declares one parameter, or several stacked ones. The reference stays valid. No memory yet.
    Storage& add(Param param) { return add(std::vector<Param>{std::move(param)}); }
    Storage& add(std::vector<Param> params);

    const std::deque<Storage>& storages() const { return storages_; }
    /// Total number of elements; a tied matrix counts once.
    int64_t count() const;

    /// Bytes of each kind of memory that allocate() will take.
    struct Bytes {
        int64_t master = 0, compute = 0, gradients = 0, moments = 0;
        int64_t total() const { return master + compute + gradients + moments; }
    };
    Bytes bytes(bool with_optimizer) const;
    /// Gets the memory and points the storages at it. `with_optimizer` false: no gradients, no moments
    /// (generation).
    void allocate(bool with_optimizer);
    /// Initial values; the moments are zero.
    void initialise(uint64_t seed, int threads);
    /// w = master in the compute type, after initialise() or a load.
    void refresh_compute(Exec& exec, const Kernels& kernels) const;

    /// All gradients as one vector, gaps for alignment included (they stay zero).
    Tensor gradients() const { return gradients_; }

private:
    StateTypes types_;
    std::deque<Storage> storages_;
    Buffer master_, compute_, gradient_, moment1_, moment2_;
    Tensor gradients_;
};

}  // namespace coeus
