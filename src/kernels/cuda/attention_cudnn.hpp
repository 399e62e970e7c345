// SPDX-License-Identifier: Apache-2.0
// Attention of an Exec that was told to use cuDNN.
#pragma once

#include "coeus/kernels/kernels.hpp"

namespace coeus::cuda {

/// As Cuda::attention, with workspace::attention bytes; false where cuDNN is not to be used or does not take
/// it, and nothing was done.
bool attention_cudnn(Exec& exec, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor document_start,
                     const AttentionShape& s, Tensor workspace);

}  // namespace coeus::cuda
