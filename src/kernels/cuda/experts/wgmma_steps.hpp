// SPDX-License-Identifier: Apache-2.0
// Steps of the depth of a product of experts in shared memory, for kernels by wgmma: two warpgroups compute
// a tile of 128 x 256, and four steps of 64 of the depth are in shared memory.
#pragma once

#include "../ptx/wgmma.hpp"
#include "grouped_product.hpp"

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

/// The distance of rows of sums in shared memory. Four rows, which half a warp writes at once, are in
/// different banks.
constexpr int sums_pitch = wgmma_columns + 8;
static_assert(wgmma_rows * sums_pitch * sizeof(float) <= stages * Step<true, true>::bytes);

/// Stores the tile, or adds it to d. All threads that multiply call it after their last products have ended;
/// `memory` are the places of steps, which nothing uses any more. The sums of a warp pass through it, so that
/// the warp moves whole rows of d. Earlier values of eight rows are read before the first one is stored: a
/// read after a store would wait for it, since both might be of the same element. For that, no read is
/// conditional: a lane beyond the last column reads the first one. If values are added, d has a multiple of
/// eight rows.
template <bool left_deep, class O>
__device__ void put_products(const GroupedProduct<bf16, O>& p, const Work<bf16, O>& w,
                             const WarpgroupSums& sums, bf16* memory) {
    constexpr int width = 4, columns_at_once = warp_size * width, parts = wgmma_columns / columns_at_once,
                  rows_at_once = 8;
    const int warp = int(threadIdx.x) / warp_size, first_row = warp * mma_rows;
    float* const rows = reinterpret_cast<float*>(memory) + first_row * sums_pitch;
    const Lane lane;
    COEUS_UNROLL
    for (int c = 0; c < wgmma_columns / 8; ++c) {
        COEUS_UNROLL
        for (int half = 0; half < 2; ++half)
            store_pack<2>(rows + (lane.row + half * 8) * sums_pitch + c * 8 + lane.column,
                          Pack<float, 2>{{sums[c].values[2 * half], sums[c].values[2 * half + 1]}});
    }
    __syncwarp();
    const bool accumulate = !left_deep && p.accumulate;
    const int first_column = int(threadIdx.x) % warp_size * width;
    COEUS_UNROLL
    for (int begin = 0; begin < mma_rows; begin += rows_at_once) {
        if (first_row + begin >= w.padded) break;
        Pack<O, width> earlier[rows_at_once][parts] = {};
        if (accumulate) {
            COEUS_UNROLL
            for (int i = 0; i < rows_at_once; ++i) {
                const int row = first_row + begin + i;
                COEUS_UNROLL
                for (int part = 0; part < parts; ++part) {
                    const int column = first_column + part * columns_at_once;
                    earlier[i][part] =
                        load_pack<width>(w.d + row * p.d.ld + (column < w.columns ? column : 0));
                }
            }
        }
        COEUS_UNROLL
        for (int i = 0; i < rows_at_once; ++i) {
            const int row = first_row + begin + i;
            if (row >= w.padded) break;
            COEUS_UNROLL
            for (int part = 0; part < parts; ++part) {
                const int column = first_column + part * columns_at_once;
                if (column >= w.columns) continue;
                const Pack<float, width> of_row = load_pack<width>(rows + (begin + i) * sums_pitch + column);
                Pack<O, width> result;
                COEUS_UNROLL
                for (int e = 0; e < width; ++e) {
                    const float sum = row < w.rows ? of_row.values[e] : 0.0f;
                    result.values[e] = store<O>(accumulate ? sum + load(earlier[i][part].values[e]) : sum);
                }
                store_pack_at_once(w.d + row * p.d.ld + column, result);
            }
        }
    }
}

/// Waits for a warpgroup's products, after which its sums may be used.
__device__ inline void wait_for_sums(WarpgroupSums& sums) {
    wait_for_products<0>();
    pin(sums);
}

}  // namespace coeus::cuda
