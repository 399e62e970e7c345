// SPDX-License-Identifier: Apache-2.0
// Attention on a GPU by cuDNN instead of our own kernels.
#pragma once

#include "coeus/device/exec.hpp"

#include <string>

namespace coeus {

/// From now on attention of this Exec, on a GPU, goes to cuDNN where cuDNN takes it: forward, in bfloat16, of
/// whole sequences without documents. Returns its name and version. ConfigError where none can be loaded,
/// or the one that there is does not work with the GPU.
std::string use_cudnn(Exec& exec);
/// The opposite.
void use_own_attention(Exec& exec);

}  // namespace coeus
