// SPDX-License-Identifier: Apache-2.0
#include "launch.hpp"

namespace coeus::cuda {

CudaState& state_of(Exec& exec) {
    if (!exec.backend) {
        auto state = std::make_unique<CudaState>();
        state->stream = static_cast<cudaStream_t>(exec.queue->native());
        exec.backend = std::move(state);
    }
    return static_cast<CudaState&>(*exec.backend);
}

void check(cudaError_t status, const char* call) {
    if (status != cudaSuccess)
        throw SystemError(fmt::format("CUDA: {}: {}", call, cudaGetErrorString(status)));
}

}  // namespace coeus::cuda
