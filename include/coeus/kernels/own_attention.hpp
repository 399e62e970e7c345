// SPDX-License-Identifier: Apache-2.0
// Which of our own kernels compute attention on a GPU.
#pragma once

#include "coeus/device/exec.hpp"

namespace coeus {

/// Those that every GPU has, or also the backward by wgmma on Hopper.
enum class OwnAttention : uint8_t { usual, mma };
/// Our own kernels of attention of this Exec are these from now on. cuDNN is used as before.
void choose_own_attention(Exec& exec, OwnAttention which);

/// Processor::cudnn_bytes of a run in which cuDNN computes the forward only: too little for any backward.
constexpr int64_t cudnn_forward_bytes = 4096;

}  // namespace coeus
