// SPDX-License-Identifier: Apache-2.0
// Steps of the depth of a product of experts in shared memory, for kernels by wgmma: two warpgroups compute
// a tile of 128 x 256, and four steps of 64 of the depth are in shared memory.
#pragma once

#include "grouped_product.hpp"
#include "wgmma.hpp"

namespace coeus::cuda {

constexpr int product_warpgroups = 2, multiplying_threads = product_warpgroups * warpgroup_threads,
              wgmma_rows = product_warpgroups * warpgroup_rows, wgmma_columns = warpgroup_columns,
              step_depth = panel_side, stages = 4;

/// A step of the operand with `count` rows or columns, in panels of 64 of these.
template <bool deep, int count>
struct OperandPanels {
    static constexpr int panels = count / panel_side, elements = panels * panel_elements;

    /// Starts to copy it by cp.async, with zeros beyond what the operand has. `threads` threads whose numbers
    /// begin at a multiple of that call it.
    template <int threads>
    __device__ static void start(bf16* tile, const bf16* from, int64_t ld, int64_t count_left,
                                 int64_t depth_left) {
        constexpr int pieces = panel_side / piece, rows_at_once = threads / pieces;
        const int64_t rows_left = deep ? count_left : depth_left, width_left = deep ? depth_left : count_left;
        const int thread = int(threadIdx.x) % threads, at = thread % pieces;
        COEUS_UNROLL
        for (int panel = 0; panel < panels; ++panel) {
            // a single warp would need too many registers
            COEUS_NO_UNROLL
            for (int first = thread / pieces; first < panel_side; first += 2 * rows_at_once) {
                COEUS_UNROLL
                for (int in_panel = first; in_panel <= first + rows_at_once; in_panel += rows_at_once) {
                    const int row = in_panel + (deep ? panel * panel_side : 0),
                              column = at * piece + (deep ? 0 : panel * panel_side);
                    const bool is_there = row < rows_left && column < width_left;
                    copy_async<16>(tile + panel * panel_elements + place_in_panel(in_panel, at),
                                   is_there ? from + row * ld + column : from, !is_there);
                }
            }
        }
    }
};

/// A step of both operands, the left one first.
template <bool left_deep, bool right_deep>
struct Step {
    using Left = OperandPanels<left_deep, wgmma_rows>;
    using Right = OperandPanels<right_deep, wgmma_columns>;
    static constexpr int elements = Left::elements + Right::elements, bytes = elements * int(sizeof(bf16));
    static constexpr size_t shared_bytes = size_t(stages) * bytes + swizzle_bytes;

    /// Starts to copy step `step` of the depth by cp.async.
    template <int threads, class O>
    __device__ static void start(bf16* to, const GroupedProduct<bf16, O>& p, const Work<bf16, O>& w,
                                 int64_t step) {
        const int64_t k = step * step_depth;
        Left::template start<threads>(to, w.left + (left_deep ? k : k * p.a.ld), p.a.ld, w.rows, w.depth - k);
        Right::template start<threads>(to + Left::elements, w.right + (right_deep ? k : k * p.b.ld), p.b.ld,
                                       w.columns, w.depth - k);
    }

    /// Starts a warpgroup's products: sums += the rows of its number of left, times right. The sums may be
    /// used, and the step overwritten, after wait_for_products().
    __device__ static void start_products(WarpgroupSums& sums, const bf16* step, int warpgroup) {
        const bf16* const left = step + warpgroup * panel_elements;
        const bf16* const right = step + Left::elements;
        pin(sums);
        begin_products();
        COEUS_UNROLL
        for (int k = 0; k < step_depth; k += warpgroup_depth)
            start_product<left_deep, right_deep>(sums, operand_of<left_deep>(left, k),
                                                 operand_of<right_deep>(right, k));
        end_products();
        pin(sums);
    }
};

inline __device__ int64_t steps_of(int64_t depth) {
    return (depth + step_depth - 1) / step_depth;
}

/// Waits for a warpgroup's products, and stores its rows of the tile.
template <bool left_deep, class O>
__device__ void put_products(const GroupedProduct<bf16, O>& p, const Work<bf16, O>& w, WarpgroupSums& sums,
                             int warpgroup) {
    wait_for_products<0>();
    pin(sums);
    const int warp = int(threadIdx.x) % warpgroup_threads / warp_size;
    put_sums(w, p.d.ld, warpgroup * warpgroup_rows + warp * mma_rows, 0, sums, !left_deep && p.accumulate);
}

}  // namespace coeus::cuda
