// SPDX-License-Identifier: Apache-2.0
// Storage: parameters that one GEMM uses together, stacked by rows (q, k, v; gate, up), or a single
// parameter.
//
// Of the stack of the tensor-parallel parts, n rows, the layers use all (w, g), while each of P FSDP ranks
// owns the rows [r ceil(n/P), min(n, (r+1) ceil(n/P))) of everything else, so that collectives of equal
// counts land in place in a buffer of P ceil(n/P) rows (Rajbhandari et al. 2020, stage 3). Which ranks these
// are is the storage's own sharding. Parameters of several groups are stacked group by group.
#pragma once

#include "coeus/base/function_ref.hpp"
#include "coeus/state/param.hpp"

#include <vector>

namespace coeus {

/// Element types of a run, and where its state is.
struct StateTypes {
    Dtype master = Dtype::f32;   ///< weights as the optimizer keeps them
    Dtype compute = Dtype::f32;  ///< weights as the layers use them
    /// With a GPU: moments, and what offloads_master() says, are in host memory (offloaded.hpp), and so are
    /// the inputs of blocks that are computed again (block_inputs.hpp).
    bool offload = false;
    /// Masters that no layer reads, since it computes in another type.
    bool offloads_master() const { return offload && compute != master; }
    /// Gradients and statistics: f64 with f64, f32 otherwise.
    Dtype accumulate() const { return compute == Dtype::f64 ? Dtype::f64 : Dtype::f32; }
};

/// Rows that a rank owns of one parameter, which follow each other there as they do in memory.
struct OwnedRun {
    const Param* param;
    int64_t first, rows;           ///< among the rows that the rank owns of the storage
    int64_t first_row, first_col;  ///< in the parameter's global shape

    /// `count` of these rows from `begin` on.
    OwnedRun part(int64_t begin, int64_t count) const {
        return {param, first + begin, count, first_row + begin, first_col};
    }
};

/// One matrix [rows, cols] of each kind. Views into memory that others own; without data until it is there.
/// The layers read `w` and add to `g`.
class Storage {
public:
    /// `place`: this rank's in the sharding of the parameters. `unit`: number of the Unit it is gathered
    /// with.
    Storage(std::vector<Param> params, const StateTypes& types, const ShardPlace& place = {},
            size_t unit = 0);
    Storage(const Storage&) = delete;
    Storage& operator=(const Storage&) = delete;

    const std::vector<Param>& params() const { return params_; }
    size_t sharding() const { return params_.front().shard.sharding; }
    const ShardPlace& place() const { return place_; }
    /// Some of its rows are on other ranks: it is gathered for use.
    bool is_gathered() const { return place_.fsdp > 1; }
    /// Of w and g.
    const Shape& shape() const { return shape_; }
    /// Of what this rank owns; rows may be 0.
    const Shape& shard_shape() const { return shard_shape_; }
    /// Of a gathered buffer: w and what makes all contributions equal.
    int64_t padded_count() const { return rows_per_shard_ * place_.fsdp * shape_.cols(); }
    size_t unit() const { return unit_; }
    bool trainable() const { return params_.front().trainable; }
    /// Every tensor-parallel rank has all of it, and the gradient is a sum over them.
    bool is_partial() const { return params_.front().shard.tp == Split::partial; }

    Tensor w;  ///< compute type; gathered, or where one rank owns all: the master itself or a converted copy
    Tensor g;  ///< gradient, accumulate type

    // this rank's rows
    Tensor master;    ///< master type
    Tensor compute;   ///< the same in w's type, where that is another; w itself if this rank owns all
    Tensor gradient;  ///< accumulate type, summed over the ranks when the optimizer sees it
    std::vector<Tensor> moments;  ///< as many as kept(), in its order; absent without memory for them

    /// What the optimizer keeps of each of the parameters: nothing until keep() says it, before there is
    /// memory. `group_of` gives the number of a parameter's group.
    const std::vector<Moment>& kept() const { return kept_; }
    void keep(std::vector<Moment> kept, FunctionRef<size_t(const Param&)> group_of);

    /// A parameter's rows in w or g: [local rows, local cols], or the parameter's own shape where it is
    /// whole. LogicError where they do not follow each other.
    Tensor rows_of(const Param& param, Tensor of) const;
    /// What this rank owns, in the order in which it lies in memory: as few runs as there can be, none empty.
    const std::vector<OwnedRun>& runs() const { return runs_; }
    /// The rows of a run in one of the tensors of owned rows; in the parameter's own shape where it is whole.
    static Tensor rows_of(const OwnedRun& run, Tensor of);

private:
    void lay_out();
    void list_runs();

    std::vector<Param> params_;
    ShardPlace place_;
    std::vector<OwnedRun> runs_;
    std::vector<Moment> kept_;
    size_t unit_;
    Shape shape_, shard_shape_;
    int64_t rows_per_group_ = 0, rows_per_shard_ = 0, shard_first_row_ = 0;
};

}  // namespace coeus
