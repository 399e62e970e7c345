// SPDX-License-Identifier: Apache-2.0
// Attention for an Exec that uses cuDNN.
#pragma once

#include "coeus/kernels/kernels.hpp"

namespace coeus::cuda {

/// Like Cuda::attention, with workspace::attention bytes of workspace. Returns false and does nothing if the
/// Exec does not use cuDNN or cuDNN does not support the call.
bool attention_cudnn(Exec& exec, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor document_start,
                     const AttentionShape& s, Tensor workspace);
/// Like Cuda::attention_backward. Returns false and does nothing if the Exec does not use cuDNN or cuDNN does
/// not support the call.
bool attention_backward_cudnn(Exec& exec, Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor out,
                              Tensor lse, Tensor q, Tensor k, Tensor v, Tensor document_start,
                              const AttentionShape& s, bool accumulate);

}  // namespace coeus::cuda
