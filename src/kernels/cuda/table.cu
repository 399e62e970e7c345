// SPDX-License-Identifier: Apache-2.0
#include "cuda.hpp"

namespace coeus {

const Kernels& cuda_kernels() {
    static constexpr Kernels table = observed_table<cuda::Cuda>("cuda");
    return table;
}

}  // namespace coeus
