// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "coeus/kernels/kernels.hpp"

namespace coeus::cpu {

/// True if this CPU has the instructions of oneDNN's fastest kernels: AVX-512 for f32, AVX-512 BF16 for bf16
/// (twice the rate of f32).
bool onednn_is_fast(Dtype type);

/// d = factor op(a) op(b) + c in f32, or in bf16 with d in bf16 or f32; rounded once. Returns false and does
/// nothing if oneDNN has no kernel for it or d is not dense (for a strided destination oneDNN silently uses
/// another algorithm).
bool onednn_gemm(Exec& exec, Tensor d, const Operand& a, const Operand& b, Tensor c, int64_t depth,
                 float factor = 1);

}  // namespace coeus::cpu
