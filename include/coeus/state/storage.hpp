// SPDX-License-Identifier: Apache-2.0
// Storage: parameters that one GEMM uses together, stacked by rows (q, k, v; gate, up), or a single
// parameter.
//
// The layers use all n rows of the stacked tensor-parallel parts (w, g). The other tensors have only the rows
// that this rank owns: FSDP rank r of P owns the rows [r ceil(n/P), min(n, (r+1) ceil(n/P))), so that
// collectives of equal counts work in place in a buffer of P ceil(n/P) rows (Rajbhandari et al. 2020, stage
// 3). The storage's sharding says which ranks these are. Parameters with several groups are stacked group by
// group.
#pragma once

#include "coeus/base/function_ref.hpp"
#include "coeus/kernels/kernels.hpp"
#include "coeus/state/param.hpp"
#include "coeus/state/state_types.hpp"

#include <vector>

namespace coeus {

/// Adjacent rows of one parameter that a rank owns and that are also adjacent in memory.
struct OwnedRun {
    const Param* param;
    int64_t first, rows;           ///< among the rows that the rank owns of the storage
    int64_t first_row, first_col;  ///< position in the parameter's global shape

    /// `count` of these rows, from row `begin` of the run on.
    OwnedRun part(int64_t begin, int64_t count) const {
        return {param, first + begin, count, first_row + begin, first_col};
    }
};

/// A matrix [rows, cols] of each kind, as views of memory with other owners. They have shapes but no data
/// until memory is allocated. Layers read `w` and add to `g`.
class Storage {
public:
    /// `place` is this rank's place in the sharding of the parameters. `unit` is the number of the Unit with
    /// which it is gathered.
    Storage(std::vector<Param> params, const StateTypes& types, const ShardPlace& place = {},
            size_t unit = 0);
    Storage(const Storage&) = delete;
    Storage& operator=(const Storage&) = delete;

    const std::vector<Param>& params() const { return params_; }
    size_t sharding() const { return params_.front().shard.sharding; }
    const ShardPlace& place() const { return place_; }
    /// True if other ranks own some of its rows, so that it is gathered for use.
    bool is_gathered() const { return place_.fsdp > 1; }
    /// Shape of w and g.
    const Shape& shape() const { return shape_; }
    /// Shape of the part that this rank owns; it may have 0 rows.
    const Shape& shard_shape() const { return shard_shape_; }
    /// Elements of the gathered buffer: w, and the padding that makes all ranks' parts equal.
    int64_t padded_count() const { return rows_per_shard_ * place_.fsdp * shape_.cols(); }
    size_t unit() const { return unit_; }
    bool trainable() const { return params_.front().trainable; }
    bool is_frozen() const { return params_.front().is_frozen(); }
    bool is_exact() const { return params_.front().is_exact; }
    Recipe recipe() const { return params_.front().recipe; }
    /// True if each parameter has one scale, in some product.
    bool has_one_scales() const;
    /// True if w has 8-bit floats.
    bool is_8_bit() const { return is_8_bit_float(w.dtype); }
    /// The type in which layers compute with it; that of `w`, unless w is in 8 bits.
    Dtype compute_type() const { return compute_type_; }
    /// The type of `master`.
    Dtype master_type() const { return master_type_; }
    /// True if every tensor-parallel rank has all of it, and its gradient is a sum over them.
    bool is_partial() const { return params_.front().shard.tp == Split::partial; }

    Tensor w;  ///< compute type; gathered, or if one rank owns all: the master or a converted copy
    /// Gradient, in the accumulation type; or in bfloat16, if StateTypes::gradients_in_bf16, it sums
    /// products, and it is not partial: a partial gradient is summed over ranks in place. Absent if the
    /// parameters are frozen.
    Tensor g;

    /// True if all that is added to g are products.
    bool sums_products() const { return params_.front().sums_products && trainable(); }
    /// From now on g counts as zero, whatever is in its memory, so that nothing has to write zeros. For
    /// storages that sum products.
    void forget_gradient() const { forgotten_ = all_params(); }
    /// Called before a product is added to these rows of g: all of them, or those of one parameter without
    /// groups. True for their first product after forget_gradient(): it must replace what is in the memory,
    /// which is not zero.
    bool begin_product(int64_t first_row, int64_t rows) const;
    /// Writes zeros into the rows of g that have had no product since forget_gradient().
    void zero_forgotten(Exec& exec, const Kernels& kernels) const;

    /// For each parameter, if they have one scale: the largest magnitude i32[1], and the scale f32[1] of w in
    /// 8 bits.
    struct OneScale {
        Tensor largest, scale;
    };
    std::vector<OneScale> one_scales;

    /// The operands of a linear layer's two products with the weight, if they are kept for a step
    /// (layers/kept_operands.hpp): of w, or of each parameter if they have one scale. Empty: they are not.
    struct KeptOperands {
        Tensor of_forward;
        Operand of_input_gradient;
    };
    std::vector<KeptOperands> kept_operands;

    // this rank's rows:
    Tensor master;   ///< in the master type
    Tensor compute;  ///< in the type of w, if that is another one; w itself if this rank owns all
    /// In the type of g; in the accumulation type if g is gathered, since it sums what ranks and
    /// micro-batches add. Summed over the ranks before the optimizer reads it. Absent if the parameters are
    /// frozen.
    Tensor gradient;
    std::vector<Tensor> moments;  ///< as many as kept(), in its order; absent until memory is allocated

    /// The moments that the optimizer keeps for each of the parameters; none until keep() sets them, which
    /// must be before memory is allocated. `group_of` returns the number of a parameter's group.
    const std::vector<Moment>& kept() const { return kept_; }
    void keep(std::vector<Moment> kept, FunctionRef<size_t(const Param&)> group_of);

    /// The rows of a parameter in w or g: [local rows, local cols], or in the parameter's own shape if it is
    /// whole. LogicError if they are not adjacent.
    Tensor rows_of(const Param& param, Tensor of) const;
    /// The rows that this rank owns, in memory order, in as few runs as possible; no run is empty.
    const std::vector<OwnedRun>& runs() const { return runs_; }
    /// The rows of a run in one of the tensors of owned rows, in the parameter's own shape if it is whole.
    static Tensor rows_of(const OwnedRun& run, Tensor of);

private:
    void lay_out();
    void list_runs();
    static constexpr size_t most_params = 64;  // bits of forgotten_
    uint64_t all_params() const { return ~uint64_t(0) >> (most_params - params_.size()); }
    bool is_forgotten(size_t param) const { return (forgotten_ >> param & 1) != 0; }

    std::vector<Param> params_;
    Dtype master_type_, compute_type_;
    ShardPlace place_;
    std::vector<OwnedRun> runs_;
    std::vector<Moment> kept_;
    size_t unit_;
    Shape shape_, shard_shape_;
    int64_t rows_per_group_ = 0, rows_per_shard_ = 0, shard_first_row_ = 0;
    // a bit for each parameter whose rows of g count as zero: about the contents of the memory, which layers
    // change although their storages are constant
    mutable uint64_t forgotten_ = 0;
};

}  // namespace coeus
