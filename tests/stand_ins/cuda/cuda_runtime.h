// SPDX-License-Identifier: Apache-2.0
// Stand-in for CUDA's header, for tests. With it the host's compiler builds the sources of the kernels.
// Launches run on the emulated blocks of block.hpp, when the streams of runtime.hpp reach them.
#pragma once

#include "stand_ins/cuda/block.hpp"
#include "stand_ins/cuda/cuda.h"
#include "stand_ins/cuda/mma.hpp"
#include "stand_ins/cuda/peers.hpp"
#include "stand_ins/cuda/runtime.hpp"
#include "stand_ins/cuda/tma.hpp"
#include "stand_ins/cuda/wgmma.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <tuple>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)

#define CUDART_VERSION 13000

namespace coeus::emulation {

/// A part of Thread that looks like CUDA's built-in variable.
template <Index Thread::*member>
struct BuiltIn {
    template <unsigned Index::*extent>
    struct Extent {
        operator unsigned() const { return thread().*member.*extent; }
    };
    Extent<&Index::x> x;
    Extent<&Index::y> y;
    Extent<&Index::z> z;
};

}  // namespace coeus::emulation

inline constexpr coeus::emulation::BuiltIn<&coeus::emulation::Thread::thread> threadIdx;
inline constexpr coeus::emulation::BuiltIn<&coeus::emulation::Thread::block> blockIdx;
inline constexpr coeus::emulation::BuiltIn<&coeus::emulation::Thread::block_size> blockDim;
inline constexpr coeus::emulation::BuiltIn<&coeus::emulation::Thread::grid> gridDim;

struct dim3 : coeus::emulation::Index {
    constexpr dim3(unsigned columns = 1, unsigned rows = 1, unsigned layers = 1)
        : Index{columns, rows, layers} {}
};

using cudaStream_t = coeus_emulated_stream*;
using cudaEvent_t = coeus_emulated_event*;
using cudaGraph_t = coeus_emulated_graph*;
using cudaGraphExec_t = coeus_emulated_graph*;
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorMapBufferObjectFailed = 205,
    cudaErrorNoKernelImageForDevice = 209,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorNotSupported = 801,
    cudaErrorSystemNotReady = 802,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901,
    cudaErrorStreamCaptureUnjoined = 904,
    cudaErrorStreamCaptureIsolation = 905,
    cudaErrorCapturedEvent = 907
};
enum cudaMemcpyKind { cudaMemcpyDefault = 4 };
constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDefault = 0, cudaEventBlockingSync = 1,
                   cudaEventDisableTiming = 2, cudaDeviceScheduleBlockingSync = 4;
struct cudaDeviceProp {
    const char* name;
    int major = 9, minor = 0, multiProcessorCount = 132;
};
const char* cudaGetErrorString(cudaError_t status);
inline cudaError_t cudaGetLastError() {
    return cudaSuccess;
}
inline cudaError_t cudaDriverGetVersion(int* version) {
    *version = coeus::emulation::driver_version;
    return cudaSuccess;
}
inline cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = coeus::emulation::toolkit_version;
    return cudaSuccess;
}
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess, cudaDriverEntryPointSymbolNotFound };
constexpr unsigned long long cudaEnableDefault = 0;
/// Knows three functions.
inline cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version,
                                                    unsigned long long,
                                                    cudaDriverEntryPointQueryResult* result) {
    const std::string_view wanted = name;
    const bool numbers = coeus::emulation::no_peers != coeus::emulation::NoPeers::numbers;
    *function = nullptr;
    if (version >= 12000 && wanted == "cuTensorMapEncodeTiled" && coeus::emulation::has_tensor_maps)
        *function = reinterpret_cast<void*>(&cuTensorMapEncodeTiled);
    if (version >= 12000 && wanted == "cuStreamWriteValue32" && numbers)
        *function = reinterpret_cast<void*>(&cuStreamWriteValue32);
    if (version >= 12000 && wanted == "cuStreamWaitValue32" && numbers)
        *function = reinterpret_cast<void*>(&cuStreamWaitValue32);
    *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
inline cudaError_t cudaSetDeviceFlags(unsigned flags) {
    coeus::emulation::device_flags = flags;
    return cudaSuccess;
}
enum cudaDeviceAttr { cudaDevAttrPciBusId = 33, cudaDevAttrPciDeviceId = 34, cudaDevAttrPciDomainId = 50 };
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device);
/// As if registers limited no kernel.
template <class Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel*, int threads, size_t) {
    *blocks = 2048 / threads;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaMalloc(void** memory, size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMallocHost(void** memory, size_t bytes);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaMemset(void* to, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream);
struct cudaIpcMemHandle_t {
    char reserved[64];
};
constexpr unsigned cudaIpcMemLazyEnablePeerAccess = 1;
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* memory);
cudaError_t cudaIpcOpenMemHandle(void** memory, cudaIpcMemHandle_t handle, unsigned flags);
cudaError_t cudaIpcCloseMemHandle(void* memory);
cudaError_t cudaDeviceSynchronize();
inline cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive };
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t first, cudaEvent_t last);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
using cudaGraphNode_t = void*;
/// Counts the nodes; never lists them.
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count);
enum cudaGraphInstantiateFlags { cudaGraphInstantiateFlagUseNodePriority = 8 };
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* instance, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph);
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream);

struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes = 0;
    cudaStream_t stream = nullptr;
};

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
    const coeus::emulation::Launch launch = {reinterpret_cast<const void*>(kernel), config->blockDim.x,
                                             config->dynamicSmemBytes};
    if (coeus::emulation::on_launch && !coeus::emulation::on_launch(launch)) return cudaSuccess;
    constexpr size_t microseconds = 1;
    const std::tuple<Parameters...> copies(std::forward<Arguments>(arguments)...);
    coeus::emulation::give(config->stream, microseconds, [kernel, copies, config = *config] {
        coeus::emulation::run_grid(config.gridDim, config.blockDim, config.dynamicSmemBytes,
                                   [&] { std::apply(kernel, copies); });
    });
    return cudaSuccess;
}

struct cudaFuncAttributes {
    int ptxVersion, binaryVersion;
};
/// Those of a program with code for 8.0 and 9.0, and PTX for 9.0. Fails after set_kernels_for_gpu(false).
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*kernel)());
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
/// Allows as much shared memory as an H100 has. All kernels but those for it take at most 99 KiB, as much as
/// sm_89 has, which has the least (tools/kernel_resources.py).
template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*)(Parameters...), cudaFuncAttribute, int bytes) {
    return bytes <= 227 << 10 ? cudaSuccess : cudaErrorInvalidValue;
}

inline void __syncthreads() {
    coeus::emulation::block_barrier();
}
inline void __syncwarp(unsigned mask = 0xffffffffu) {
    coeus::emulation::warp_barrier(mask, "a barrier of the warp");
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask) {
    return coeus::emulation::exchange(mask, value, coeus::emulation::thread().lane() ^ lane_mask,
                                      "__shfl_xor_sync");
}
template <class T>
T __shfl_sync(unsigned mask, T value, int source) {
    return coeus::emulation::exchange(mask, value, source, "__shfl_sync");
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
    return coeus::emulation::ballot(mask, predicate);
}
inline int atomicMax(int* address, int value) {
    const int old = *address;
    *address = std::max(old, value);
    return old;
}
inline int __ffs(int bits) {
    return __builtin_ffs(bits);
}
inline int __popc(unsigned bits) {
    return __builtin_popcount(bits);
}
