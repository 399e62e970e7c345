// SPDX-License-Identifier: Apache-2.0
// Products of rows that are grouped by expert, by Hopper's wgmma, with copies by TMA. This file is compiled
// for sm_90a only. One warp copies steps of the depth into the four places of shared memory, as soon as these
// are free, and two warpgroups multiply them. Both tell each other by barriers.
#include "../ptx/tensor_map.hpp"
#include "../ptx/tma.hpp"
#include "grouped_gemm_wgmma.hpp"
#include "wgmma_steps.hpp"

namespace coeus::cuda {

namespace {

static_assert(box_columns == panel_side);

constexpr int threads = multiplying_threads + warp_size;

/// Two barriers for each place: phases of `full` end when a step has arrived, those of `empty` when each warp
/// has multiplied it.
struct StageBarriers {
    Barrier full[stages], empty[stages];
};

/// The place of a step, and the parity of its phases there.
struct Place {
    int stage, parity;
    __device__ explicit Place(int64_t step) : stage(int(step % stages)), parity(int(step / stages % 2)) {}
};

/// One thread starts to copy a step of an operand of which `first` is the first row or column, and `depth`
/// the first index of the depth.
template <class Panels, bool deep>
__device__ void copy_step(bf16* to, const CUtensorMap& stack, Barrier& barrier, int64_t first, int64_t depth,
                          int64_t matrix) {
    if constexpr (deep) {
        copy_box(to, stack, barrier, depth, first, matrix);  // panels of 64 rows follow each other
    } else {
        COEUS_UNROLL
        for (int panel = 0; panel < Panels::panels; ++panel)
            copy_box(to + panel * panel_elements, stack, barrier, first + panel * panel_side, depth, matrix);
    }
}

/// The work of the warp that copies.
template <bool left_deep, bool right_deep, class O>
__device__ void copy_steps(bf16* memory, StageBarriers& barriers, const GroupedProduct<bf16, O>& p,
                           const Work<bf16, O>& w, const CUtensorMap& left, const CUtensorMap& right) {
    using Tiles = Step<left_deep, right_deep>;
    const bool is_first_lane = int(threadIdx.x) % warp_size == 0;
    const int64_t steps = steps_of(w.depth);
    for (int64_t step = 0; step < steps; ++step) {
        const Place at(step);
        Barrier& full = barriers.full[at.stage];
        bf16* const to = memory + at.stage * Tiles::elements;
        if (step >= stages) barriers.empty[at.stage].wait(at.parity ^ 1);
        __syncwarp();  // a lane that falls back by two phases would wait for a later one
        const int64_t k = step * step_depth;
        if (!left_deep && w.depth - k < step_depth) {
            // the next rows are another group's, which TMA would copy
            Tiles::template start<warp_size>(to, p, w, step);
            end_copies();
            wait_for_copies_to_multiply<0>();
            __syncwarp();
            if (is_first_lane) full.arrive();
        } else if (is_first_lane) {
            full.arrive_and_expect(Tiles::bytes);
            // rows of all groups are one matrix, and each group has its own weights
            copy_step<typename Tiles::Left, left_deep>(to, left, full, left_deep ? w.first : w.row,
                                                       left_deep ? k : w.first + k, 0);
            copy_step<typename Tiles::Right, right_deep>(to + Tiles::Left::elements, right, full, w.column,
                                                         left_deep ? k : w.first + k,
                                                         left_deep ? w.group : 0);
        }
    }
}

template <bool left_deep, bool right_deep, class O>
__global__ void __launch_bounds__(threads, 1)
    grouped_gemm_tma_kernel(GroupedProduct<bf16, O> p, const __grid_constant__ CUtensorMap left,
                            const __grid_constant__ CUtensorMap right) {
    using Tiles = Step<left_deep, right_deep>;
    const Work<bf16, O> w = work_of<left_deep, right_deep>(p, wgmma_rows, wgmma_columns);
    if (w.rows <= 0) return;
    bf16* const memory = first_panel(shared_memory());
    StageBarriers& barriers = *reinterpret_cast<StageBarriers*>(memory + stages * Tiles::elements);
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < stages; ++stage) {
            barriers.full[stage].begin(1);
            barriers.empty[stage].begin(multiplying_threads / warp_size);
        }
        show_barriers();
    }
    __syncthreads();
    if (int(threadIdx.x) >= multiplying_threads) {
        copy_steps<left_deep, right_deep>(memory, barriers, p, w, left, right);
        __syncthreads();
        return;
    }
    const int warpgroup = int(threadIdx.x) / warpgroup_threads;
    const bool is_first_lane = int(threadIdx.x) % warp_size == 0;
    const int64_t steps = steps_of(w.depth);
    WarpgroupSums sums = {};
    for (int64_t step = 0; step < steps; ++step) {
        const Place at(step);
        barriers.full[at.stage].wait(at.parity);
        Tiles::start_products(sums, memory + at.stage * Tiles::elements, warpgroup);
        wait_for_products<1>();  // those of the step before are done
        if (step > 0 && is_first_lane) barriers.empty[Place(step - 1).stage].arrive();
    }
    wait_for_sums(sums);
    __syncthreads();  // all steps have arrived, and both warpgroups are done with them
    put_products<left_deep>(p, w, sums, memory);
}

}  // namespace

template <bool left_deep, bool right_deep, class O>
void multiply_by_tma(Exec& exec, const GroupedProduct<bf16, O>& p, const Tensor& a, const Tensor& b) {
    constexpr int left_rows = left_deep ? wgmma_rows : panel_side,
                  right_rows = right_deep ? wgmma_columns : panel_side;
    launch(exec, left_deep ? "grouped_gemm_tma" : "grouped_gemm_weights_tma",
           {tiles<left_deep>(p, a.rows(), wgmma_rows, wgmma_columns), threads,
            Step<left_deep, right_deep>::shared_bytes + sizeof(StageBarriers)},
           grouped_gemm_tma_kernel<left_deep, right_deep, O>, p, boxes_of(a, 1, left_rows),
           boxes_of(b, left_deep ? p.groups.number : 1, right_rows));
}
#define COEUS_INSTANTIATE(left_deep, right_deep, O)                                             \
    template void multiply_by_tma<left_deep, right_deep>(Exec&, const GroupedProduct<bf16, O>&, \
                                                         const Tensor&, const Tensor&);
COEUS_INSTANTIATE(true, true, bf16)
COEUS_INSTANTIATE(true, true, float)
COEUS_INSTANTIATE(true, false, bf16)
COEUS_INSTANTIATE(true, false, float)
COEUS_INSTANTIATE(false, false, bf16)
COEUS_INSTANTIATE(false, false, float)
#undef COEUS_INSTANTIATE

}  // namespace coeus::cuda
