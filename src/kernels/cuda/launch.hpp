// SPDX-License-Identifier: Apache-2.0
// The one place that launches CUDA kernels: grid, threads, shared memory, stream and error check. With the
// tests' stand-in for <cuda_runtime.h> the same call runs them on the CPU.
#pragma once

#include "coeus/device/exec.hpp"
#include "coeus/kernels/product_options.hpp"
#include "experts/grouped_choice.hpp"

#include <algorithm>
#include <cuda_runtime.h>
#include <optional>
#include <type_traits>

namespace coeus::cuda {

/// What kernels need besides their operands. It is in Exec::backend and is made by the first kernel.
struct CudaState : BackendState {
    cudaStream_t stream = nullptr;  ///< null: CUDA's default stream
    ProductOptions product_options;
    std::unique_ptr<BackendState> products;       ///< made by the first product
    std::optional<GroupedChoice> grouped_choice;  ///< made by the first product of experts
    std::unique_ptr<BackendState> cudnn;          ///< null: our own kernels compute attention
};
CudaState& state_of(Exec& exec);
/// True if the Exec's work is being recorded into a graph: then nothing may be waited for.
inline bool is_recording(const Exec& exec) {
    return exec.queue->is_recording();
}

/// Throws SystemError with the name of the call if it failed.
void check(cudaError_t status, const char* call);
#define COEUS_CHECK_CUDA(call) ::coeus::cuda::check(call, #call)

/// Most blocks of a grid in its second and third dimension; the first may have 2^31 - 1.
constexpr unsigned most_blocks_across = 65535;

struct Grid {
    dim3 blocks;
    int threads = 256;        ///< of a block, in whole warps
    size_t shared_bytes = 0;  ///< of a block: shared_memory()
};

/// Launches a kernel. The name is for messages and observers.
template <class... Parameters>
void launch(Exec& exec, const char* name, const Grid& grid, void (*kernel)(Parameters...),
            const std::type_identity_t<Parameters>&... arguments) {
    if (grid.blocks.x == 0 || grid.blocks.y == 0 || grid.blocks.z == 0) return;
    require(grid.blocks.y <= most_blocks_across && grid.blocks.z <= most_blocks_across,
            "more blocks across than a grid can have");
    exec.observers.launch(name);
    constexpr size_t usual_shared_bytes = 48 << 10;
    if (grid.shared_bytes > usual_shared_bytes)
        check(
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(grid.shared_bytes)),
            name);
    cudaLaunchConfig_t config = {};
    config.gridDim = grid.blocks;
    config.blockDim = dim3(unsigned(grid.threads));
    config.dynamicSmemBytes = grid.shared_bytes;
    config.stream = state_of(exec).stream;
    check(cudaLaunchKernelEx(&config, kernel, arguments...), name);
}

/// Number of blocks for this many pieces of work. LogicError if a grid cannot have so many.
inline unsigned blocks_for(int64_t pieces) {
    require(pieces >= 0 && pieces < (int64_t(1) << 31), "more blocks than a grid can have");
    return unsigned(pieces);
}

/// How many blocks of a kernel the GPU runs at the same time.
template <class... Parameters>
int64_t resident_blocks(Exec& exec, void (*kernel)(Parameters...), int threads, size_t shared_bytes) {
    int of_multiprocessor = 0;
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&of_multiprocessor, kernel, threads, shared_bytes),
          "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    return std::max<int64_t>(1, int64_t(of_multiprocessor) * exec.device->multiprocessors());
}

/// The grid of a kernel whose threads take pieces of work in turn: as many blocks as the GPU runs at the same
/// time, or fewer for little work. No bit may depend on the number of blocks.
template <class... Parameters>
Grid resident_grid(Exec& exec, void (*kernel)(Parameters...), int64_t pieces, size_t shared_bytes = 0) {
    Grid grid = {.shared_bytes = shared_bytes};
    grid.blocks = blocks_for(
        std::min(div_ceil(pieces, grid.threads), resident_blocks(exec, kernel, grid.threads, shared_bytes)));
    return grid;
}

/// The same for blocks that take rows in turn, from a grid with a block for each row and part of it.
template <class... Parameters>
Grid resident_rows(Exec& exec, void (*kernel)(Parameters...), Grid grid) {
    const int64_t resident = resident_blocks(exec, kernel, grid.threads, grid.shared_bytes);
    grid.blocks.y = unsigned(std::min<int64_t>(grid.blocks.y, resident));
    grid.blocks.x = unsigned(
        std::min<int64_t>(grid.blocks.x, std::max<int64_t>(1, resident / std::max(1U, grid.blocks.y))));
    return grid;
}

/// Number of threads in whole warps, at most one for each element of a short row.
inline int threads_for(int64_t width, int most = 256) {
    return int(std::min<int64_t>(most, round_up(std::max<int64_t>(width, 1), 32)));
}

/// Calls f with a value of the element type: f32 or bf16, which train on GPUs.
template <class F>
void dispatch(Dtype type, F&& f) {
    switch (type) {
        case Dtype::f32: return f(float());
        case Dtype::bf16: return f(bf16());
        default:
            throw LogicError(
                fmt::format("a CUDA kernel got {}; it takes float32 or bfloat16", name_of(type)));
    }
}

}  // namespace coeus::cuda
