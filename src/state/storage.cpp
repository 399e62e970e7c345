// SPDX-License-Identifier: Apache-2.0
#include "coeus/state/storage.hpp"

namespace coeus {

Storage::Storage(std::vector<Param> params, const StateTypes& types) : params_(std::move(params)) {
    require(!params_.empty(), "a storage holds at least one parameter");
    int64_t rows = 0;
    for (Param& param : params_) {
        require(param.shape.cols() == params_.front().shape.cols(),
                "parameters of one storage have equal columns");
        require(param.trainable == params_.front().trainable,
                "parameters of one storage are trained together or not at all");
        param.first_row = rows;
        rows += param.rows();
    }
    shape_ = params_.size() == 1 ? params_.front().shape : Shape{rows, params_.front().shape.cols()};
    // types and shapes are known before there is memory, so that a planning run can read them
    w = Tensor(nullptr, types.compute, shape_);
    g = Tensor(nullptr, types.accumulate(), shape_);
}

Tensor Storage::rows_of(const Param& param, Tensor of) const {
    return of.slice_rows(param.first_row, param.rows()).reshape(param.shape);
}

}  // namespace coeus
