// SPDX-License-Identifier: Apache-2.0
// Roundings of PyTorch's bfloat16 modules (transformers, eager attention) where our kernels have fewer. One
// of them may move the largest element of a tensor. Its scale then changes, and with it most 8-bit elements.
#pragma once

#include "coeus/kernels/kernels.hpp"

namespace coeus::test {

/// Replaces kernels of a forward in bfloat16 by slow ones that round like the library.
void round_like_the_library(Kernels& kernels);

}  // namespace coeus::test
