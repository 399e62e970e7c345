// SPDX-License-Identifier: Apache-2.0
// Products of rows that are grouped by expert, by Hopper's wgmma, with copies by cp.async. This file is
// compiled for sm_90a only. While a step of the depth is multiplied, and the one before may still be, two are
// copied.
#include "grouped_gemm_wgmma.hpp"
#include "wgmma_steps.hpp"

namespace coeus::cuda {

namespace {

constexpr int threads = multiplying_threads;

template <bool left_deep, bool right_deep, class O>
__global__ void __launch_bounds__(threads, 1) grouped_gemm_wgmma_kernel(GroupedProduct<bf16, O> p) {
    using Tiles = Step<left_deep, right_deep>;
    const Work<bf16, O> w = work_of<left_deep, right_deep>(p, wgmma_rows, wgmma_columns);
    if (w.rows <= 0) return;
    bf16* const memory = first_panel(shared_memory());
    const int64_t steps = steps_of(w.depth);
    const auto place_of = [&](int64_t step) { return memory + step % stages * Tiles::elements; };
    const auto start = [&](int64_t step) {
        if (step < steps) Tiles::template start<threads>(place_of(step), p, w, step);
        end_copies();
    };
    const int warpgroup = int(threadIdx.x) / warpgroup_threads;
    WarpgroupSums sums = {};
    start(0);
    start(1);
    for (int64_t step = 0; step < steps; ++step) {
        wait_for_copies_to_multiply<1>();
        __syncthreads();  // the step has arrived, and all products of two steps before are done
        Tiles::start_products(sums, place_of(step), warpgroup);
        start(step + 2);
        wait_for_products<1>();
    }
    wait_for_sums(sums);
    __syncthreads();  // both warpgroups are done with the steps
    put_products<left_deep>(p, w, sums, memory);
}

}  // namespace

bool has_wgmma(const Device& gpu) {
    return gpu.architecture() == 90;
}

std::string why_no_wgmma(const Device& gpu) {
    if (!has_wgmma(gpu))
        return fmt::format("only GPUs of compute capability 9.0 have it, and {} has {}.{}", gpu.name(),
                           gpu.architecture() / 10, gpu.architecture() % 10);
    cudaFuncAttributes attributes = {};
    const auto kernel = grouped_gemm_wgmma_kernel<true, true, bf16>;
    const cudaError_t status = cudaFuncGetAttributes(&attributes, reinterpret_cast<void (*)()>(kernel));
    if (status == cudaSuccess) return "";
    cudaGetLastError();  // clears the error, which the next call would report again
    return fmt::format("this program does not have the kernel for compute capability 9.0 ({})",
                       cudaGetErrorString(status));
}

template <bool left_deep, bool right_deep, class O>
void multiply_by_wgmma(Exec& exec, const GroupedProduct<bf16, O>& p, int64_t buffer_rows) {
    launch(exec, left_deep ? "grouped_gemm_wgmma" : "grouped_gemm_weights_wgmma",
           {tiles<left_deep>(p, buffer_rows, wgmma_rows, wgmma_columns), threads,
            Step<left_deep, right_deep>::shared_bytes},
           grouped_gemm_wgmma_kernel<left_deep, right_deep, O>, p);
}
#define COEUS_INSTANTIATE(left_deep, right_deep, O) \
    template void multiply_by_wgmma<left_deep, right_deep>(Exec&, const GroupedProduct<bf16, O>&, int64_t);
COEUS_INSTANTIATE(true, true, bf16)
COEUS_INSTANTIATE(true, true, float)
COEUS_INSTANTIATE(true, false, bf16)
COEUS_INSTANTIATE(true, false, float)
COEUS_INSTANTIATE(false, false, bf16)
COEUS_INSTANTIATE(false, false, float)
#undef COEUS_INSTANTIATE

}  // namespace coeus::cuda
