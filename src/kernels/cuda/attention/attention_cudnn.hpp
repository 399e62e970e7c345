// SPDX-License-Identifier: Apache-2.0
// Attention for an Exec that uses cuDNN.
#pragma once

#include "coeus/kernels/kernels.hpp"

namespace coeus::cuda {

/// Like Cuda::attention or, with `merge`, Cuda::merge_attention. Returns false and does nothing if the Exec
/// does not use cuDNN or cuDNN does not support the call.
bool attention_cudnn(Exec& exec, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor document_start,
                     const AttentionShape& s, bool merge);
/// Like Cuda::attention_backward. Returns false and does nothing if the Exec does not use cuDNN or cuDNN does
/// not support the call.
bool attention_backward_cudnn(Exec& exec, Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor out,
                              Tensor lse, Tensor q, Tensor k, Tensor v, Tensor document_start,
                              const AttentionShape& s, bool add_to_dq);

}  // namespace coeus::cuda
