// SPDX-License-Identifier: Apache-2.0
// Products of rows that are grouped by expert, by Hopper's wgmma. This file is compiled for sm_90a only. Four
// steps of the depth are in shared memory: while one is multiplied, and the one before may still be, two are
// copied.
#include "grouped_gemm_wgmma.hpp"
#include "wgmma.hpp"

namespace coeus::cuda {

namespace {

constexpr int warpgroups = 2, threads = warpgroups * warpgroup_threads,
              tile_rows = warpgroups * warpgroup_rows, step_depth = panel_side, stages = 4;

/// A step of the operand with `count` rows or columns, in panels of 64 of these.
template <bool deep, int count>
struct OperandPanels {
    static constexpr int panels = count / panel_side, elements = panels * panel_elements;

    /// Starts to copy it, with zeros beyond what the operand has.
    __device__ static void start(bf16* tile, const bf16* from, int64_t ld, int64_t count_left,
                                 int64_t depth_left) {
        constexpr int pieces = panel_side / piece, rows_at_once = threads / pieces;
        const int64_t rows_left = deep ? count_left : depth_left, width_left = deep ? depth_left : count_left;
        const int at = int(threadIdx.x) % pieces;
        COEUS_UNROLL
        for (int panel = 0; panel < panels; ++panel) {
            COEUS_UNROLL
            for (int first = 0; first < panel_side; first += rows_at_once) {
                const int in_panel = first + int(threadIdx.x) / pieces;
                const int row = in_panel + (deep ? panel * panel_side : 0),
                          column = at * piece + (deep ? 0 : panel * panel_side);
                const bool is_there = row < rows_left && column < width_left;
                copy_async<16>(tile + panel * panel_elements + place_in_panel(in_panel, at),
                               is_there ? from + row * ld + column : from, !is_there);
            }
        }
    }
};

template <bool left_deep, bool right_deep>
struct Stage {
    using Left = OperandPanels<left_deep, tile_rows>;
    using Right = OperandPanels<right_deep, warpgroup_columns>;
    static constexpr int elements = Left::elements + Right::elements;
    static constexpr size_t shared_bytes = stages * elements * sizeof(bf16) + swizzle_bytes;
};

template <bool left_deep, bool right_deep, class O>
__global__ void __launch_bounds__(threads, 1) grouped_gemm_wgmma_kernel(GroupedProduct<bf16, O> p) {
    using Tiles = Stage<left_deep, right_deep>;
    using Left = typename Tiles::Left;
    using Right = typename Tiles::Right;
    const Work<bf16, O> w = work_of<left_deep, right_deep>(p, tile_rows, warpgroup_columns);
    if (w.rows <= 0) return;
    bf16* const memory = first_panel(shared_memory());
    const int64_t steps = (w.depth + step_depth - 1) / step_depth;
    const auto tile_of = [&](int64_t step) { return memory + step % stages * Tiles::elements; };
    const auto start = [&](int64_t step) {
        if (step < steps) {
            const int64_t k = step * step_depth;
            Left::start(tile_of(step), w.left + (left_deep ? k : k * p.a.ld), p.a.ld, w.rows, w.depth - k);
            Right::start(tile_of(step) + Left::elements, w.right + (right_deep ? k : k * p.b.ld), p.b.ld,
                         w.columns, w.depth - k);
        }
        end_copies();
    };
    const int first_row = int(threadIdx.x) / warpgroup_threads * warpgroup_rows;
    WarpgroupSums sums = {};
    start(0);
    start(1);
    for (int64_t step = 0; step < steps; ++step) {
        wait_for_copies_to_multiply<1>();
        __syncthreads();  // the step has arrived, and all products of two steps before are done
        const bf16* const left = tile_of(step) + first_row / panel_side * panel_elements;
        const bf16* const right = tile_of(step) + Left::elements;
        pin(sums);
        begin_products();
        COEUS_UNROLL
        for (int k = 0; k < step_depth; k += warpgroup_depth)
            start_product<left_deep, right_deep>(sums, operand_of<left_deep>(left, k),
                                                 operand_of<right_deep>(right, k));
        end_products();
        pin(sums);
        start(step + 2);
        wait_for_products<1>();
    }
    wait_for_products<0>();
    pin(sums);
    put_sums(w, p.d.ld, first_row + int(threadIdx.x) % warpgroup_threads / warp_size * mma_rows, 0, sums,
             !left_deep && p.accumulate);
}

}  // namespace

std::string why_no_wgmma(const Device& gpu) {
    const int number = gpu.architecture();
    if (number != 90)
        return fmt::format("only GPUs of compute capability 9.0 have it, and {} has {}.{}", gpu.name(),
                           number / 10, number % 10);
    cudaFuncAttributes attributes = {};
    const auto kernel = grouped_gemm_wgmma_kernel<true, true, bf16>;
    const cudaError_t status = cudaFuncGetAttributes(&attributes, reinterpret_cast<void (*)()>(kernel));
    if (status == cudaSuccess) return "";
    cudaGetLastError();  // clears the error, which the next call would report again
    return fmt::format("this program does not have the kernel for compute capability 9.0 ({})",
                       cudaGetErrorString(status));
}

template <bool left_deep, bool right_deep, class O>
void multiply_by_wgmma(Exec& exec, const char* name, const GroupedProduct<bf16, O>& p, int64_t buffer_rows) {
    launch(exec, name,
           {tiles<left_deep>(p, buffer_rows, tile_rows, warpgroup_columns), threads,
            Stage<left_deep, right_deep>::shared_bytes},
           grouped_gemm_wgmma_kernel<left_deep, right_deep, O>, p);
}
#define COEUS_INSTANTIATE(left_deep, right_deep, O)                            \
    template void multiply_by_wgmma<left_deep, right_deep>(Exec&, const char*, \
                                                           const GroupedProduct<bf16, O>&, int64_t);
COEUS_INSTANTIATE(true, true, bf16)
COEUS_INSTANTIATE(true, true, float)
COEUS_INSTANTIATE(true, false, bf16)
COEUS_INSTANTIATE(true, false, float)
COEUS_INSTANTIATE(false, false, bf16)
COEUS_INSTANTIATE(false, false, float)
#undef COEUS_INSTANTIATE

}  // namespace coeus::cuda
