// SPDX-License-Identifier: Apache-2.0
// In the place of cuBLASLt, which has no source to be run here.
#include "../../src/kernels/cuda/cuda.hpp"
#include "../../src/kernels/cuda/launch.hpp"
#include "../../src/kernels/cuda/workspace.hpp"

namespace coeus::cuda {

void Cuda::gemm(Exec& exec, Tensor d, Operand a, Operand b, Tensor c) {
    const Scope scope(exec.workspace);
    exec.workspace.alloc(Dtype::u8, {workspace::gemm});  // as the library, which may need less
    emulation::give(state_of(exec).stream, [=] {
        Exec planning, own;
        dry_kernels().gemm(planning, d, a, b, c);
        own.workspace = Arena(planning.workspace.peak(), "product");
        cpu_kernels().gemm(own, d, a, b, c);
    });
}

}  // namespace coeus::cuda
