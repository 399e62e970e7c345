// SPDX-License-Identifier: Apache-2.0
#include "launch.hpp"

namespace coeus::cuda {

cudaStream_t stream_of(const Exec& exec) {
    const auto* state = static_cast<const CudaState*>(exec.backend.get());
    return state ? state->stream : nullptr;
}

void check(cudaError_t status, const char* call) {
    if (status != cudaSuccess)
        throw SystemError(fmt::format("CUDA: {}: {}", call, cudaGetErrorString(status)));
}

}  // namespace coeus::cuda
