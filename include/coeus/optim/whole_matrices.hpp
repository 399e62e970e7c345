// SPDX-License-Identifier: Apache-2.0
// WholeMatrices: for optimizers that look at a matrix as a whole, while each rank owns rows or columns of it.
//
// The owned rows of a storage's gradient are gathered in the compute type, over the ranks that divide rows
// (FSDP) and then over those that divide rows or columns (tensor parallelism). Every rank of both then has
// the whole matrix and computes the same of it, so that the bits are those of one rank and nothing has to be
// sent back; it keeps the rows that it owns.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/state/parameters.hpp"

namespace coeus {

class WholeMatrices {
public:
    /// The ranks of the dense sharding. `scratch` holds the largest storage's matrices, and what `each` below
    /// takes of it.
    WholeMatrices(const Communicator& fsdp_ranks, const Communicator& tp_ranks, Arena& scratch)
        : fsdp_(fsdp_ranks), tp_(tp_ranks), scratch_(scratch) {}

    /// each(param, matrix) for every parameter of a storage: what all ranks own of its gradient, [rows, cols]
    /// of its global shape, in the compute type. What `each` leaves there takes the place of the gradient.
    /// Collective. Where the communicators are planned, nothing but the scratch is used. LogicError for a
    /// storage of another sharding, or of parameters with several groups.
    using Each = FunctionRef<void(const Param&, Tensor matrix)>;
    void replace(Exec& exec, const Kernels& kernels, const Storage& storage, Each each) const;
    Arena& scratch() const { return scratch_; }

private:
    const Communicator &fsdp_, &tp_;
    Arena& scratch_;
};

}  // namespace coeus
