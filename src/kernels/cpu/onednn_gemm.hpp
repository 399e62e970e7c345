// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "coeus/kernels/kernels.hpp"

namespace coeus::cpu {

/// True where oneDNN has its fastest kernels: AVX-512 for f32, AVX-512-BF16 for bf16 (twice the rate of f32).
bool onednn_is_fast(Dtype type);

/// d = op(a) op(b) + c in f32, or bf16 with d in bf16 or f32. False, with nothing done, where oneDNN has no
/// kernel for it or d is not dense (with a strided destination it silently changes algorithm).
bool onednn_gemm(Exec& exec, Tensor d, const Operand& a, const Operand& b, Tensor c, int64_t depth);

}  // namespace coeus::cpu
