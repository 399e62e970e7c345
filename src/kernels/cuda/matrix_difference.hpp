// SPDX-License-Identifier: Apache-2.0
// How much two results of the same product differ.
#pragma once

#include "coeus/device/tensor.hpp"

namespace coeus::cuda {

struct MatrixDifference {
    /// The largest over all tiles of 64 x 64: the norm of the difference, divided by the norm of the tile of
    /// `expected`. Infinite if a tile of `expected` is zero and the other is not, or if one has a number that
    /// is not finite.
    double largest = 0;
    bool all_zero = true;  ///< every element of `expected` is zero
};
/// Two matrices of float32 or bfloat16 of the same shape, in host memory.
MatrixDifference difference_of(const Tensor& expected, const Tensor& other);

}  // namespace coeus::cuda
