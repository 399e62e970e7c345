// SPDX-License-Identifier: Apache-2.0
// KeptOperands: weights of linear layers in 8 bits, in the forms of both products, which are made once after
// each update instead of in each forward and backward (Storage::kept_operands). They have the same bits, so
// the results do not differ. Weights that are gathered are not kept: each rank would hold those of all ranks.
#pragma once

#include "coeus/layers/linear_weight.hpp"
#include "coeus/state/parameters.hpp"

namespace coeus {

class KeptOperands {
public:
    /// Gives the storages room for operands, as on a GPU of `exec`, and allocates no memory yet. `tp`: the
    /// tensor-parallel ranks, for planning too. The parameters must outlive it.
    KeptOperands(Parameters& parameters, Exec& exec, const Kernels& kernels, const Communicator& tp);

    int64_t bytes() const { return memory_.peak(); }
    void allocate(Exec& exec, const Kernels& kernels, const Communicator& tp);
    /// Which weights have changed.
    enum class Changed : uint8_t { all, trained };
    /// Called after weights changed, and after OneScaleWeights was renewed. Tensor-parallel ranks call it
    /// together. What it needs meanwhile is in `temp`.
    void renew(Exec& exec, const Kernels& kernels, Arena& temp, const Communicator& tp,
               Changed changed) const;

private:
    void lay_out(Exec& exec, const Kernels& kernels, const Communicator& tp);
    Parameters& parameters_;
    Arena memory_;
};

}  // namespace coeus
