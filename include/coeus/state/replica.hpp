// SPDX-License-Identifier: Apache-2.0
// Replica: which ranks own the same part of a parameter. It is defined only here. It determines which
// of these ranks writes the part to checkpoints and counts it in a norm, and which are compared with each
// other.
#pragma once

#include "coeus/state/param.hpp"

namespace coeus {

/// True if each tensor-parallel rank has a different part; false if each has all.
bool is_divided_over_tp(const Param& param);

/// This rank's number among the ranks that own the same part of a parameter, and how many they are:
/// data-parallel replicas, pipeline ranks that share a table, and tensor-parallel ranks that do not divide
/// the parameter.
struct Replica {
    int number = 0, count = 1;
};
/// `place` is that of the parameter's sharding.
Replica replica_of(const Param& param, const ShardPlace& place);

/// True if this rank counts the parameter in sums over everything that is owned, such as the norm of the
/// gradients. If several ranks of a data-parallel replica own it, exactly one of them counts it.
bool counts_here(const Param& param, const ShardPlace& place);

}  // namespace coeus
