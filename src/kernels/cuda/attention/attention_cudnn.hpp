// SPDX-License-Identifier: Apache-2.0
// Attention for an Exec that uses cuDNN.
#pragma once

#include "coeus/kernels/cudnn.hpp"
#include "coeus/kernels/kernels.hpp"

#include <string>

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

/// Name and version of the cuDNN that the Exec uses.
std::string cudnn_text(Exec& exec);
/// Ends what take_own_backward() began for calls like this one.
void forget_own_backward(Exec& exec, const AttentionCall& call);

}  // namespace coeus::cuda
