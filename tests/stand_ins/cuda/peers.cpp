// SPDX-License-Identifier: Apache-2.0
#include "stand_ins/cuda/peers.hpp"

#include "stand_ins/cuda/runtime.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <cuda_runtime.h>
#include <map>
#include <mutex>
#include <string>

using namespace coeus::emulation;

namespace {

struct Handle {
    pid_t process;
    int file;
};

std::mutex mutex_of_opened;
std::map<void*, size_t> opened;  // and its bytes

}  // namespace

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* memory) {
    if (no_peers == NoPeers::naming) return cudaErrorNotSupported;
    const Handle shared = {getpid(), share(memory)};
    if (shared.file < 0) return cudaErrorInvalidValue;
    std::memset(handle, 0, sizeof *handle);
    std::memcpy(handle, &shared, sizeof shared);
    return cudaSuccess;
}

// As in CUDA, a process cannot open its own memory.
cudaError_t cudaIpcOpenMemHandle(void** memory, cudaIpcMemHandle_t handle, unsigned flags) {
    Handle shared = {};
    std::memcpy(&shared, &handle, sizeof shared);
    if (flags != cudaIpcMemLazyEnablePeerAccess || shared.process == getpid()) return cudaErrorInvalidValue;
    if (no_peers == NoPeers::opening) return cudaErrorMapBufferObjectFailed;
    const std::string path = "/proc/" + std::to_string(shared.process) + "/fd/" + std::to_string(shared.file);
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    struct stat status = {};
    *memory = file >= 0 && fstat(file, &status) == 0 ? open_shared(file, size_t(status.st_size)) : nullptr;
    if (file >= 0) close(file);
    if (!*memory) return cudaErrorMapBufferObjectFailed;
    const std::lock_guard lock(mutex_of_opened);
    opened[*memory] = size_t(status.st_size);
    return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void* memory) {
    {
        const std::lock_guard lock(mutex_of_opened);
        if (opened.erase(memory) == 0) return cudaErrorInvalidValue;
    }
    return cudaFree(memory);
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
    if (flags != CU_STREAM_WRITE_VALUE_DEFAULT || address % sizeof value != 0)
        return CUDA_ERROR_INVALID_VALUE;
    auto* const number = reinterpret_cast<uint32_t*>(address);
    give(stream, [number, value] {
        if (no_peers == NoPeers::lost) return;
        std::atomic_ref(*number).store(value, std::memory_order_release);
        const std::lock_guard lock(mutex_of_opened);
        for (const auto& [memory, bytes] : opened) {
            const auto* const first = static_cast<const std::byte*>(memory);
            const auto* const written = reinterpret_cast<const std::byte*>(number);
            if (first <= written && written < first + bytes) ++numbers_for_peers;
        }
    });
    return CUDA_SUCCESS;
}

// Each replay of a graph waits again.
CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
    if (flags != CU_STREAM_WAIT_VALUE_EQ || address % sizeof value != 0) return CUDA_ERROR_INVALID_VALUE;
    const auto* const number = reinterpret_cast<const uint32_t*>(address);
    give_anew(stream, [number, value](coeus_emulated_stream* of_replay) {
        give_when(
            of_replay, [number, value] { return number_at(number) == value; }, [] {});
    });
    return CUDA_SUCCESS;
}
