// SPDX-License-Identifier: Apache-2.0
#include "coeus/kernels/kernels.hpp"

namespace coeus {

const Kernels& kernels_of(Backend backend) {
    return backend == Backend::cuda ? cuda_kernels() : cpu_kernels();
}

const Kernels& dry_kernels_of(Backend backend) {
    return backend == Backend::cuda ? dry_cuda_kernels() : dry_kernels();
}

}  // namespace coeus
