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

#include <span>

namespace coeus {

/// The ranks that divide the matrices of a sharding: the owned rows (FSDP), and blocks of rows or columns
/// (tensor parallelism).
struct MatrixRanks {
    const Communicator &fsdp, &tp;
};

class WholeMatrices {
public:
    /// `ranks` has those of each sharding, by its number, and must outlive it. `scratch` must have room for
    /// the matrices of the largest storage, and for what `each` below allocates in it.
    WholeMatrices(std::span<const MatrixRanks> ranks, Arena& scratch) : ranks_(ranks), scratch_(scratch) {}
    /// Every matrix is here.
    explicit WholeMatrices(Arena& scratch);

    /// Calls each(param, matrix) for every parameter of a storage, and every group of it that is on this
    /// rank. `matrix` is the whole gradient, [rows per group, cols] of the global shape, in the compute type;
    /// what `each` leaves there replaces the gradient. Collective. If the communicators are planned, only the
    /// scratch memory is used.
    using Each = FunctionRef<void(const Param&, Tensor matrix)>;
    void replace(Exec& exec, const Kernels& kernels, const Storage& storage, Each each) const;
    Arena& scratch() const { return scratch_; }

private:
    std::span<const MatrixRanks> ranks_;
    Arena& scratch_;
};

}  // namespace coeus
