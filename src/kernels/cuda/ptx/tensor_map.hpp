// SPDX-License-Identifier: Apache-2.0
// Descriptions of matrices for Hopper's TMA. Kernels take them as parameters (__grid_constant__), so that
// graphs keep them.
#pragma once

#include "coeus/device/tensor.hpp"

#include <cuda.h>

namespace coeus::cuda {

/// Columns of a box: 128 bytes of bfloat16, the width of the 128-byte swizzle, in which boxes are stored.
constexpr int box_columns = 64;

/// True if the driver can describe matrices.
bool has_tensor_maps();

/// Describes `matrices` matrices of bfloat16 that are stacked in t, to be copied in boxes of so many rows (at
/// most 256). Elements of a box beyond its matrix are zero. t has elements, and its rows begin at multiples
/// of 16 bytes. Throws SystemError if the driver refuses.
CUtensorMap boxes_of(const Tensor& t, int64_t matrices, int box_rows);

}  // namespace coeus::cuda
