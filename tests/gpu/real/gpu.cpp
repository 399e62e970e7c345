// SPDX-License-Identifier: Apache-2.0
// A real GPU. Its allocations and waits are counted where the program calls the CUDA library for them.
#include "gpu/gpu.hpp"

#include <cuda_runtime.h>
#include <dlfcn.h>

namespace {

size_t allocations = 0, waits = 0;

// The library's own function of this name.
template <class Function>
Function* library_function(const char* name) {
    return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

cudaError_t cudaMalloc(void** memory, size_t bytes) {
    static const auto call = library_function<cudaError_t(void**, size_t)>("cudaMalloc");
    ++allocations;
    return call(memory, bytes);
}

cudaError_t cudaMallocHost(void** memory, size_t bytes) {
    static const auto call = library_function<cudaError_t(void**, size_t)>("cudaMallocHost");
    ++allocations;
    return call(memory, bytes);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    static const auto call =
        library_function<cudaError_t(cudaEvent_t*, unsigned)>("cudaEventCreateWithFlags");
    ++allocations;
    return call(event, flags);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    static const auto call = library_function<cudaError_t(cudaStream_t)>("cudaStreamSynchronize");
    ++waits;
    return call(stream);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    static const auto call = library_function<cudaError_t(cudaEvent_t)>("cudaEventSynchronize");
    ++waits;
    return call(event);
}

namespace coeus::test {

const Device& the_gpu() {
    static const auto gpu = open_gpu(0);
    return *gpu;
}

void set_order(uint64_t /*seed*/) {}
void choose_cudnn() {}

void let_streams_starve(bool /*some*/) {}

size_t gpu_allocations() {
    return allocations;
}

double seconds_of_kernel() {
    return 0;
}

// Tensor cores of Hopper keep about 13 bits of sums of 8-bit floats, and fewer if they are fast.
double error_of_8_bit_sums() {
    return 2e-3;
}

size_t gpu_waits() {
    return waits;
}

}  // namespace coeus::test
