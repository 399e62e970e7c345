// SPDX-License-Identifier: Apache-2.0
// Products of rows that are grouped by expert, of 8-bit floats that are not decoded.
#pragma once

#include "coeus/kernels/kernels.hpp"

namespace coeus::cuda {

/// As scaled_grouped_gemm, for operands for which multiplies_codes() is true.
void multiply_grouped_codes(Exec& exec, Tensor d, Tensor a, Operand b, const Groups& groups);
/// As scaled_grouped_gemm_weights, for such operands.
void multiply_grouped_codes(Exec& exec, Tensor d, Tensor a, Tensor b, Tensor c, const Groups& groups);

}  // namespace coeus::cuda
