// SPDX-License-Identifier: Apache-2.0
#include "coeus/state/storage.hpp"

#include <algorithm>

namespace coeus {

namespace {

// n rows of such a shape, a vector's elements being its rows.
Shape with_rows(const Shape& like, int64_t rows) {
    return like.rank == 1 ? Shape{rows} : Shape{rows, like.cols()};
}

}  // namespace

Storage::Storage(std::vector<Param> params, const StateTypes& types, const ShardPlace& place, size_t unit)
    : params_(std::move(params)), unit_(unit), fsdp_(place.fsdp) {
    require(!params_.empty(), "a storage holds at least one parameter");
    int64_t rows = 0;
    for (Param& param : params_) {
        require(param.shape.cols() == params_.front().shape.cols(),
                "parameters of one storage have equal columns");
        require(param.trainable == params_.front().trainable,
                "parameters of one storage are trained together or not at all");
        require(param.shard.tp == params_.front().shard.tp, "parameters of one storage are divided alike");
        param.local = param.part(place.tp, place.tp_rank);
        param.first_row = rows;
        rows += param.local.rows;
    }
    const Param& first = params_.front();
    const bool whole = params_.size() == 1 && first.local.rows == first.shape.rows() &&
                       first.local.cols == first.shape.cols();
    shape_ = whole ? first.shape : first.shape.rank == 1 ? Shape{rows} : Shape{rows, first.local.cols};
    rows_per_shard_ = div_ceil(rows, fsdp_);
    shard_first_row_ = std::min(rows, place.fsdp_rank * rows_per_shard_);
    const int64_t owned_rows = std::min(rows_per_shard_, rows - shard_first_row_);
    shard_shape_ = owned_rows == rows ? shape_ : with_rows(shape_, owned_rows);
    // types and shapes are known before there is memory, so that a planning run can read them
    w = Tensor(nullptr, types.compute, shape_);
    g = Tensor(nullptr, types.accumulate(), shape_);
    gradient = Tensor(nullptr, types.accumulate(), shard_shape_);
}

void Storage::keep(std::vector<Moment> kept, FunctionRef<size_t(const Param&)> group_of) {
    require(!master, "what an optimizer keeps is said before there is memory");
    for (Param& param : params_) param.group = group_of(param);
    kept_ = std::move(kept);
    moments.assign(kept_.size(), Tensor());
}

Tensor Storage::rows_of(const Param& param, Tensor of) const {
    const Tensor rows = of.slice_rows(param.first_row, param.local.rows);
    return rows.count() == param.shape.count() ? rows.reshape(param.shape) : rows;
}

Storage::Piece Storage::owned(const Param& param, Tensor of) const {
    const int64_t last_owned = shard_first_row_ + shard_shape_.rows();
    const int64_t begin = std::max(param.first_row, shard_first_row_),
                  end = std::max(begin, std::min(param.first_row + param.local.rows, last_owned));
    const int64_t first = begin < end ? begin - shard_first_row_ : 0;
    const Tensor rows = of.slice_rows(first, end - begin);
    return {.rows = rows.count() == param.shape.count() ? rows.reshape(param.shape) : rows,
            .first_row = param.local.first_row + (begin - param.first_row),
            .first_col = param.local.first_col};
}

}  // namespace coeus
