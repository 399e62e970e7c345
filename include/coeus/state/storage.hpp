// SPDX-License-Identifier: Apache-2.0
// Storage: parameters that one GEMM uses together, stacked by rows (q, k, v; gate, up), or a single
// parameter.
#pragma once

#include "coeus/state/param.hpp"

#include <vector>

namespace coeus {

/// Element types of a run.
struct StateTypes {
    Dtype master = Dtype::f32;   ///< weights as the optimizer keeps them, and the moments
    Dtype compute = Dtype::f32;  ///< weights as the layers use them
    /// Gradients and statistics: f64 with f64, f32 otherwise.
    Dtype accumulate() const { return compute == Dtype::f64 ? Dtype::f64 : Dtype::f32; }
};

/// One matrix [sum of the parameters' rows, cols] of each kind. Views into the memory of Parameters; all
/// empty until Parameters::allocate(). The layers read `w` and add to `g`.
class Storage {
public:
    Storage(std::vector<Param> params, const StateTypes& types);

    const std::vector<Param>& params() const { return params_; }
    const Shape& shape() const { return shape_; }
    bool trainable() const { return params_.front().trainable; }

    Tensor w;           ///< compute type; the master itself where the types are equal
    Tensor g;           ///< gradient, accumulate type
    Tensor master;      ///< master type
    Tensor exp_avg;     ///< first moment; absent without an optimizer
    Tensor exp_avg_sq;  ///< second moment

    /// The rows of one parameter in one of the tensors above, in the parameter's shape.
    Tensor rows_of(const Param& param, Tensor of) const;

private:
    std::vector<Param> params_;
    Shape shape_;
};

}  // namespace coeus
