// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "coeus/kernels/kernels.hpp"

namespace coeus::cpu {

/// d[M, N] = a[M, K] b[N, K]^T + c for a few rows M: see workspace::is_thin. The bits of a row depend on K,
/// not on M.
void thin_gemm(Exec& exec, Tensor d, Tensor a, Tensor b, Tensor c);
/// Columns [first, last) of d, by the calling thread.
void thin_gemm_columns(const Tensor& d, const Tensor& a, const Tensor& b, const Tensor& c, int64_t first,
                       int64_t last);

}  // namespace coeus::cpu
