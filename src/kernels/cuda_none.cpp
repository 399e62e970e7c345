// SPDX-License-Identifier: Apache-2.0
#include "coeus/kernels/autotune.hpp"
#include "coeus/kernels/cudnn.hpp"
#include "coeus/kernels/kernels.hpp"

namespace coeus {

const Kernels& cuda_kernels() {
    throw SystemError("this program was built without CUDA (make cuda builds one with it)");
}

void autotune_products(Exec&, const std::string&) {}

std::string use_cudnn(Exec&) {
    throw ConfigError("this program was built without CUDA (make cuda builds one with it)");
}

AttentionKernel choose_kernel(Exec&, const AttentionCall&) {
    return {};
}

void use_own_attention(Exec&) {}

}  // namespace coeus
