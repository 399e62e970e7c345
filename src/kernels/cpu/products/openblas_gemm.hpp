// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "coeus/kernels/kernels.hpp"

namespace coeus::cpu {

/// d = op(a) op(b) + c in f64. It is the reference for all other products, since the library shares no code
/// with them.
void openblas_gemm(Exec& exec, Tensor d, const Operand& a, const Operand& b, Tensor c, int64_t depth);

}  // namespace coeus::cpu
