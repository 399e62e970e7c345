// SPDX-License-Identifier: Apache-2.0
// Param: one named parameter of the model: its global shape, how it is sharded, how it starts, how it is
// optimised.
#pragma once

#include "coeus/base/random.hpp"
#include "coeus/device/tensor.hpp"

#include <string>

namespace coeus {

/// How a parameter is divided over an axis. partial: every rank holds it whole, and its gradient is a sum
/// over the axis.
enum class Split : uint8_t { none, rows, cols, partial };
/// The sharding of all layers but those that divide their parameters over other ranks.
constexpr size_t dense_sharding = 0;
/// Sharding is said once, here. FSDP always splits the rows of what remains.
struct Shard {
    Split tp = Split::none;
    size_t sharding = dense_sharding;  ///< over which ranks: number of a ShardPlace in Parameters
};

/// What a parameter is in its model: optimizers and their options are chosen by it.
enum class ParamRole : uint8_t {
    matrix,     ///< of a block: the weight of a linear layer
    embedding,  ///< a table of vectors, also where it is the output projection as well
    output,     ///< projection to the vocabulary
    norm,       ///< weight of a normalisation
    bias,
};

/// A tensor that an optimizer keeps of a parameter, of the parameter's shape.
struct Moment {
    std::string name;  ///< in checkpoints: "exp_avg"
    Dtype dtype;
    bool operator==(const Moment&) const = default;
};

/// Initial values, a function of (seed, name, global element index): any mesh starts from the same model.
struct Init {
    double constant = 0;  ///< every element, where std is 0
    double std = 0;       ///< of a normal distribution around 0
    double bound = 0;     ///< values beyond +-bound are not drawn; 0: no bound

    static Init ones() { return {.constant = 1}; }
    static Init normal(double std) { return {.std = std}; }
    static Init truncated_normal(double std, double bound) { return {.std = std, .bound = bound}; }
    /// Element `index` of a parameter; `stream` is that of its name.
    double value(const RandomStream& stream, uint64_t index) const;
};

/// This rank's place among the ranks that divide parameters between them: one for each sharding.
struct ShardPlace {
    int tp = 1, tp_rank = 0;        ///< tensor parallel: blocks of rows or columns, used as they are
    int fsdp = 1, fsdp_rank = 0;    ///< rows of what tensor parallelism leaves, gathered for use
    int replicas = 1, replica = 0;  ///< data-parallel groups of such ranks, each of which has all
};

/// A block of a matrix; of a parameter with several groups, the same block of each.
struct Extent {
    int64_t first_row = 0, rows = 0, first_col = 0, cols = 0;
};

struct Param {
    std::string name;  ///< torchtitan's: "layers.0.attention.wq.weight"
    Shape shape;       ///< global
    Init init;
    Shard shard = {};
    ParamRole role = ParamRole::matrix;
    bool trainable = true;
    int64_t groups = 1;  ///< matrices of equal rows that it holds one below the other
    int copies = 1,
        copy = 0;       ///< pipeline ranks that have it (a table tied to the head: two); this one's number
    Extent local = {};  ///< what this rank's layers use of it; set by its Storage
    int64_t first_row = 0;  ///< of the local part among the rows of a group in its Storage
    size_t group = 0;       ///< number of the optimizer's group that updates it; set by the optimizer

    int64_t rows_per_group() const { return shape.rows() / groups; }
    /// The part of each group that a tensor-parallel rank has: equal blocks; the last ones are shorter or
    /// empty if the rows or columns do not divide evenly.
    Extent part(int tp, int tp_rank) const;
};

}  // namespace coeus
