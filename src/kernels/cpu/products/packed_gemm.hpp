// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "coeus/kernels/kernels.hpp"

namespace coeus::cpu {

/// d[m, n] = op(a)[m, depth] op(b)[depth, n] + c in f32, or in bf16 with d in bf16 or f32, with any strides,
/// for depth > 0. The bits are the same for any number of threads.
void packed_gemm(Exec& exec, Tensor d, const Operand& a, const Operand& b, Tensor c, int64_t depth);

}  // namespace coeus::cpu
