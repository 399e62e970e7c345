// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/error.hpp"
#include "coeus/device/peers.hpp"

#include <cstring>
#include <cuda.h>
#include <cuda_runtime.h>

namespace coeus {

namespace {

void check_peers(cudaError_t status, const char* call) {
    if (status == cudaSuccess) return;
    cudaGetLastError();  // clears the error, which the next call would report again
    throw SystemError(fmt::format("{} reports \"{}\"", call, cudaGetErrorString(status)));
}

/// A function of the driver, asked for at run time: so nothing links the driver's library, which a machine
/// that builds may not have.
template <class Function>
Function function_of_driver(const char* name) {
    void* function = nullptr;
    auto result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    constexpr unsigned version = 12000;  // the first one that records it in graphs
    const cudaError_t status =
        cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &result);
#else
    const cudaError_t status = cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &result);
#endif
    if (status != cudaSuccess) cudaGetLastError();
    if (status != cudaSuccess || result != cudaDriverEntryPointSuccess)
        throw SystemError(fmt::format("the driver has no {} of CUDA 12", name));
    return reinterpret_cast<Function>(function);
}

void check_driver(CUresult status, const char* call) {
    if (status != CUDA_SUCCESS) throw SystemError(fmt::format("{} reports error {}", call, int(status)));
}

class GpuPeers : public Peers {
public:
    MemoryName name_of(std::byte* memory) const override {
        cudaIpcMemHandle_t handle;
        check_peers(cudaIpcGetMemHandle(&handle, memory), "cudaIpcGetMemHandle");
        MemoryName name;
        static_assert(sizeof handle == sizeof name);
        std::memcpy(name.data(), &handle, sizeof handle);
        return name;
    }
    std::byte* open(const MemoryName& name) const override {
        cudaIpcMemHandle_t handle;
        std::memcpy(&handle, name.data(), sizeof handle);
        void* opened = nullptr;
        check_peers(cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess),
                    "cudaIpcOpenMemHandle");
        return static_cast<std::byte*>(opened);
    }
    void close(std::byte* opened) const override {
        cudaIpcCloseMemHandle(opened);  // fails only after an error that was already reported
    }
    void write(Queue& queue, uint32_t* to, uint32_t number) const override {
        check_driver(write_(static_cast<cudaStream_t>(queue.native()), address_of(to), number,
                            CU_STREAM_WRITE_VALUE_DEFAULT),
                     "cuStreamWriteValue32");
    }
    void wait(Queue& queue, const uint32_t* at, uint32_t number) const override {
        check_driver(
            wait_(static_cast<cudaStream_t>(queue.native()), address_of(at), number, CU_STREAM_WAIT_VALUE_EQ),
            "cuStreamWaitValue32");
    }

private:
    static CUdeviceptr address_of(const uint32_t* number) {
        return static_cast<CUdeviceptr>(reinterpret_cast<uintptr_t>(number));
    }
    decltype(cuStreamWriteValue32)* write_ =
        function_of_driver<decltype(cuStreamWriteValue32)*>("cuStreamWriteValue32");
    decltype(cuStreamWaitValue32)* wait_ =
        function_of_driver<decltype(cuStreamWaitValue32)*>("cuStreamWaitValue32");
};

}  // namespace

std::unique_ptr<Peers> peers_of(const Device& gpu) {
    require(!gpu.is_host(), "the host has no peers");
    return std::make_unique<GpuPeers>();
}

}  // namespace coeus
