// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "coeus/kernels/kernels.hpp"

namespace coeus::cpu {

/// d[m, n] = op(a)[m, depth] op(b)[depth, n] + c in f32, or bf16 with d in bf16 or f32, with any strides,
/// depth > 0. The same bits for any number of threads.
void packed_gemm(Exec& exec, Tensor d, const Operand& a, const Operand& b, Tensor c, int64_t depth);

}  // namespace coeus::cpu
