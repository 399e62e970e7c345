// SPDX-License-Identifier: Apache-2.0
// Replica: which ranks own the same of a parameter. Said once, here: which of them writes it to checkpoints,
// counts it in a norm, and is compared with the others follows from it.
#pragma once

#include "coeus/state/param.hpp"

namespace coeus {

/// Each tensor-parallel rank has a part of its own; else every one has all.
bool is_divided_over_tp(const Param& param);

/// This rank's number among the ranks that own the same of a parameter, and how many these are: data-parallel
/// replicas, pipeline ranks that share a table, tensor-parallel ranks that do not divide it.
struct Replica {
    int number = 0, count = 1;
};
/// `place`: that of the parameter's sharding.
Replica replica_of(const Param& param, const ShardPlace& place);

/// Whether this rank counts the parameter in sums over all that is owned, such as the norm of the gradients.
/// If several ranks of a data-parallel replica own it, exactly one of them counts it.
bool counts_here(const Param& param, const ShardPlace& place);

}  // namespace coeus
