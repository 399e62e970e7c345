// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "coeus/kernels/kernels.hpp"

namespace coeus::cpu {

/// d[M, N] = a[M, K] b[N, K]^T + c for a few rows M: see workspace::is_thin. The bits of a row depend on K,
/// not on M.
void thin_gemm(Exec& exec, Tensor d, Tensor a, Tensor b, Tensor c);

}  // namespace coeus::cpu
