// SPDX-License-Identifier: Apache-2.0
// Param: one named parameter of the model: its global shape, how it is sharded, initialised and optimized.
#pragma once

#include "coeus/deck_names/param_role.hpp"
#include "coeus/device/tensor.hpp"
#include "coeus/kernels/init.hpp"
#include "coeus/kernels/quantization.hpp"

#include <string>

namespace coeus {

/// How a parameter is divided over tensor-parallel ranks. partial: every rank has all of it, and its gradient
/// is a sum over the ranks.
enum class Split : uint8_t { none, rows, cols, partial };
/// The sharding of all layers that do not divide their parameters over other ranks.
constexpr size_t dense_sharding = 0;
/// How a parameter is sharded; defined only here. FSDP always divides the rows of the tensor-parallel part.
struct Shard {
    Split tp = Split::none;
    size_t sharding = dense_sharding;  ///< the number in Parameters of the ShardPlace whose ranks divide it
};

/// A tensor of optimizer state with the parameter's shape.
struct Moment {
    std::string name;  ///< its name in checkpoints: "exp_avg"
    Dtype dtype;
    bool operator==(const Moment&) const = default;
};

/// This rank's place among the ranks that divide the parameters of a sharding.
struct ShardPlace {
    int tp = 1, tp_rank = 0;        ///< tensor parallelism: blocks of rows or columns, used as they are
    int fsdp = 1, fsdp_rank = 0;    ///< rows of the tensor-parallel part, gathered for use
    int ep = 1, ep_rank = 0;        ///< expert parallelism: equal numbers of groups, used as they are
    int replicas = 1, replica = 0;  ///< data-parallel groups of such ranks, each of which has all parameters
    bool operator==(const ShardPlace&) const = default;
};

/// This rank's places in the shardings of a model.
struct ModelPlace {
    ShardPlace dense;    ///< of all parameters but the matrices of experts
    ShardPlace experts;  ///< of the matrices of experts

    /// The experts' matrices are divided like all others.
    ModelPlace(const ShardPlace& all = {}) : dense(all), experts(all) {}  // NOLINT: implicit
    ModelPlace(const ShardPlace& of_most, const ShardPlace& of_experts)
        : dense(of_most), experts(of_experts) {}
};

/// A block of a matrix. For a parameter with several groups, the same block of some adjacent groups.
struct Extent {
    int64_t first_row = 0, rows = 0, first_col = 0, cols = 0;
    int64_t first_group = 0, groups = 1;
};

struct Param {
    std::string name;  ///< torchtitan's name: "layers.0.attention.wq.weight"
    Shape shape;       ///< the global shape
    Init init;
    Shard shard = {};
    ParamRole role = ParamRole::matrix;
    bool trainable = true;      ///< the optimizer updates it
    bool takes_recipe = false;  ///< the layer that uses it can compute in 8 bits
    /// Its gradient is a sum of products of all its columns (WeightGradient), so that the first of them can
    /// replace what is in memory. Equal within a Storage.
    bool sums_products = false;
    Recipe recipe = Recipe::none;  ///< how this layer computes; equal within a Storage
    /// Its weights are in the accumulation type, whatever the types of the run: small numbers that are
    /// updated by small amounts. Not gathered and not offloaded.
    bool is_exact = false;
    /// True if nothing changes its weights (state/frozen.hpp): then it has neither gradient nor moments.
    bool is_frozen() const { return !trainable && !is_exact; }
    int64_t choices = 1, chosen = 1;  ///< a token uses `chosen` of its `choices` equal parts (experts)
    int64_t groups = 1;               ///< number of matrices with equal rows that are stacked in it
    int64_t together = 1;             ///< so many adjacent rows or columns are on one tensor-parallel rank
    /// Pipeline ranks that have the parameter (two for a table tied to the head), and this rank's number
    /// among them.
    int copies = 1, copy = 0;
    Extent local = {};      ///< the part that this rank's layers use; set by its Storage
    int64_t first_row = 0;  ///< of the local part, among the rows of a group in its Storage
    size_t group = 0;       ///< number of the optimizer's group that updates it; set by the optimizer

    int64_t rows_per_group() const { return shape.rows() / groups; }
    /// The part of each group that a tensor-parallel rank has. The parts are equal blocks; if the rows or
    /// columns do not divide evenly, the last ones are shorter or empty.
    Extent part(int tp, int tp_rank) const;
    /// The part that layers use on a rank. LogicError if the expert-parallel ranks cannot have equally many
    /// groups.
    Extent part(const ShardPlace& place) const;
};

}  // namespace coeus
