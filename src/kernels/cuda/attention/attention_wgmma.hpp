// SPDX-License-Identifier: Apache-2.0
// The backward of attention by Hopper's wgmma.
#pragma once

#include "attention_choice.hpp"
#include "attention_tiles.hpp"

namespace coeus::cuda {

/// Raise it with each change of attention_backward_wgmma.cu that makes the kernels faster or slower: kept
/// choices between them and cuDNN's backward (measured_backward.cu) hold for this number only.
inline constexpr int backward_wgmma_version = 1;

/// True if these kernels compute a backward in bfloat16: wgmma_fits, operands have elements, and mma was not
/// chosen. If the program or the driver lacks what they need, the first call warns with the reason, and mma
/// computes all.
bool wgmma_computes(Exec& exec, const AttentionShape& s);

/// Like Cuda::attention_backward; requires tensor_cores_fit and wgmma_computes, and dq must not be
/// the memory of q.
void attention_backward_wgmma(Exec& exec, Tensor dq, Tensor dk, Tensor dv, Tensor dout,
                              const Statistics& statistics, Tensor q, Tensor k, Tensor v,
                              const AttentionShape& s, bool add_to_dq);

}  // namespace coeus::cuda
