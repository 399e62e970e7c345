// SPDX-License-Identifier: Apache-2.0
// Attention by cuDNN instead of our own kernels on a GPU.
#pragma once

#include "coeus/device/exec.hpp"

#include <string>

namespace coeus {

/// From now on cuDNN computes the attention of this Exec on a GPU if it supports it: only the forward, in
/// bfloat16, of whole sequences without document masks. Returns cuDNN's name and version. ConfigError if
/// cuDNN cannot be loaded or does not work with the GPU.
std::string use_cudnn(Exec& exec);
/// From now on our own kernels compute the attention of this Exec.
void use_own_attention(Exec& exec);

}  // namespace coeus
