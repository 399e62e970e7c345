// SPDX-License-Identifier: Apache-2.0
// WholeMatrices: gives optimizers whole matrices, although each rank owns only rows or columns of them.
//
// The owned rows of a storage's gradient are gathered in the compute type, over the ranks that divide rows
// (FSDP) and then over those that divide rows or columns (tensor parallelism). Every one of these ranks then
// has the whole matrix and computes the same, so that the bits are those of one rank and nothing has to be
// sent back; each keeps the rows that it owns.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/state/parameters.hpp"

namespace coeus {

class WholeMatrices {
public:
    /// The communicators are those of the dense sharding. `scratch` must have room for the matrices of the
    /// largest storage, and for what `each` below allocates in it.
    WholeMatrices(const Communicator& fsdp_ranks, const Communicator& tp_ranks, Arena& scratch)
        : fsdp_(fsdp_ranks), tp_(tp_ranks), scratch_(scratch) {}

    /// Calls each(param, matrix) for every parameter of a storage, and every group of it. `matrix` is the
    /// whole gradient, [rows per group, cols] of the global shape, in the compute type; what `each` leaves
    /// there replaces the gradient. Collective. If the communicators are planned, only the scratch memory is
    /// used. LogicError for a storage of another sharding.
    using Each = FunctionRef<void(const Param&, Tensor matrix)>;
    void replace(Exec& exec, const Kernels& kernels, const Storage& storage, Each each) const;
    Arena& scratch() const { return scratch_; }

private:
    const Communicator &fsdp_, &tp_;
    Arena& scratch_;
};

}  // namespace coeus
