// SPDX-License-Identifier: Apache-2.0
// The GPUs of the emulated host, and what its CUDA says of them.
#include "stand_ins/cuda/runtime.hpp"

#include <algorithm>
#include <cstdlib>
#include <cuda_runtime.h>

namespace coeus::emulation {

namespace {

// COEUS_EMULATED_GIB: memory of a GPU, for several ranks of a program
const size_t own_memory = std::getenv("COEUS_EMULATED_GIB")
                              ? size_t(std::atoi(std::getenv("COEUS_EMULATED_GIB"))) << 30
                              : all_memory;
int gpus = std::getenv("COEUS_EMULATED_GPUS") ? std::atoi(std::getenv("COEUS_EMULATED_GPUS")) : 1;
cudaError_t failure = cudaErrorNoDevice;  // if there are no GPUs
bool kernels_for_gpu = true;

}  // namespace

void set_kernels_for_gpu(bool are_there) {
    kernels_for_gpu = are_there;
}

void set_gpus(int count) {
    gpus = count;
    failure = cudaErrorNoDevice;
}

void set_failure(int status) {
    gpus = 0;
    failure = cudaError_t(status);
}

}  // namespace coeus::emulation

using namespace coeus::emulation;

const char* cudaGetErrorString(cudaError_t status) {
    switch (status) {
        case cudaSuccess: return "no error";
        case cudaErrorInvalidValue: return "invalid argument";
        case cudaErrorMemoryAllocation: return "out of memory";
        case cudaErrorInsufficientDriver:
            return "CUDA driver version is insufficient for CUDA runtime version";
        case cudaErrorMapBufferObjectFailed: return "mapping of buffer object failed";
        case cudaErrorNotSupported: return "operation not supported";
        case cudaErrorNoKernelImageForDevice:
            return "no kernel image is available for execution on the device";
        case cudaErrorNoDevice: return "no CUDA-capable device is detected";
        case cudaErrorInvalidResourceHandle: return "invalid resource handle";
        case cudaErrorNotReady: return "device not ready";
        case cudaErrorSystemNotReady: return "system not yet initialized";
        case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
        case cudaErrorStreamCaptureInvalidated:
            return "operation failed due to a previous error during capture";
        case cudaErrorStreamCaptureUnjoined: return "capturing stream has unjoined work";
        case cudaErrorStreamCaptureIsolation:
            return "dependency created on uncaptured work in another stream";
        case cudaErrorCapturedEvent:
            return "operation not permitted on an event last recorded in a capturing stream";
    }
    return "unknown error";
}

cudaError_t cudaGetDeviceCount(int* count) {
    *count = gpus;
    return gpus > 0 ? cudaSuccess : failure;
}

cudaError_t cudaSetDevice(int device) {
    return device < gpus ? cudaSuccess : failure;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int /*device*/) {
    *properties = {"emulated GPU", architecture / 10, architecture % 10};
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device) {
    *value = which == cudaDevAttrPciBusId ? 1 + device : 0;
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*)()) {
    const int built = std::min(architecture / 10 * 10, 90);
    *attributes = {built, architecture < 100 ? built : architecture};
    return kernels_for_gpu ? cudaSuccess : cudaErrorNoKernelImageForDevice;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
    *total = own_memory;
    *free = std::min(free_memory == all_memory ? own_memory : free_memory, own_memory - device_bytes());
    return cudaSuccess;
}
