// SPDX-License-Identifier: Apache-2.0
// Products of a warpgroup through PTX that only sm_90a has: four warps multiply matrices of bfloat16 in
// shared memory, and need not wait for the sums at once. The PTX ISA describes all of it in "Asynchronous
// warpgroup level matrix instructions"; tests/stand_ins/cuda emulates it on the CPU.
//
// An operand is made of panels of 64 rows of 64 elements (128 bytes). Eight rows are an atom of the 128-byte
// swizzle: piece p (16 bytes) of row r is at the place of piece p ^ (r % 8). An operand whose depth runs
// along its rows is "K-major" in PTX, another one "MN-major".
#pragma once

#include "mma.hpp"

namespace coeus::cuda {

constexpr int warpgroup_threads = 4 * warp_size, warpgroup_rows = 64, warpgroup_columns = 256,
              warpgroup_depth = 16;
constexpr int panel_side = 64, panel_elements = panel_side * panel_side;
/// The swizzle depends on addresses: panels begin at multiples of this.
constexpr int swizzle_bytes = 1024;

/// The place of a piece of a row within a panel, in elements.
__device__ inline int place_in_panel(int row, int at) {
    return row * panel_side + (at ^ row % 8) * piece;
}

/// The address of shared memory as PTX counts it.
__device__ inline unsigned shared_address(const void* memory) {
#ifdef __CUDACC__
    return unsigned(__cvta_generic_to_shared(memory));
#else
    return emulation::shared_address(memory);
#endif
}

/// The first place for a panel. Needs up to swizzle_bytes more than the panels.
__device__ inline bf16* first_panel(unsigned char* memory) {
    const unsigned beyond = shared_address(memory) % swizzle_bytes;
    return reinterpret_cast<bf16*>(memory + (beyond ? swizzle_bytes - beyond : 0));
}

/// Describes 16 elements of the depth, from `depth` (a multiple of 16) on, of an operand that begins with
/// this panel.
template <bool deep>
__device__ uint64_t operand_of(const bf16* panel, int depth) {
    constexpr uint64_t unit = 16, swizzle_128 = uint64_t(1) << 62;
    constexpr uint64_t of_panel = panel_elements * sizeof(bf16), of_row = panel_side * sizeof(bf16);
    // from one panel to the next; not read if deep, since then the panels follow each other
    constexpr uint64_t leading = of_panel / unit;
    // from eight rows to the next eight
    constexpr uint64_t stride = 8 * of_row / unit;
    const unsigned first = shared_address(panel) + unsigned(depth * (deep ? int(sizeof(bf16)) : int(of_row)));
    return swizzle_128 | stride << 32 | leading << 16 | (first & 0x3ffff) / unit;
}

/// A thread's share of the sums of 64 x 256: warp w of the warpgroup has rows 16 w to 16 w + 15, and sums[c]
/// columns 8 c to 8 c + 7.
using WarpgroupSums = Sums[warpgroup_columns / 8];

/// Keeps the compiler from moving uses of the sums to the other side of this place.
__device__ inline void pin([[maybe_unused]] WarpgroupSums& sums) {
#ifdef __CUDACC__
    COEUS_UNROLL
    for (int c = 0; c < warpgroup_columns / 8; ++c) {
        COEUS_UNROLL
        for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(sums[c].values[i])::"memory");
    }
#endif
}

/// Must come before the first product of a group: what threads did with the sums until now is done.
__device__ inline void begin_products() {
#ifdef __CUDACC__
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#else
    emulation::begin_products();
#endif
}

/// Starts sums[64 x 256] += a[64 x 16] b[16 x 256]. All threads of the warpgroup call it, with operand_of()
/// of a and of b. Neither the sums nor the operands may be touched until wait_for_products().
template <bool left_deep, bool right_deep>
__device__ void start_product(WarpgroupSums& sums, uint64_t a, uint64_t b) {
#ifdef __CUDACC__
#define COEUS_SUMS(c) \
    "+f"(sums[c].values[0]), "+f"(sums[c].values[1]), "+f"(sums[c].values[2]), "+f"(sums[c].values[3])
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
        "%128, %129, 1, 1, 1, %130, %131;"
        : COEUS_SUMS(0), COEUS_SUMS(1), COEUS_SUMS(2), COEUS_SUMS(3), COEUS_SUMS(4), COEUS_SUMS(5),
          COEUS_SUMS(6), COEUS_SUMS(7), COEUS_SUMS(8), COEUS_SUMS(9), COEUS_SUMS(10), COEUS_SUMS(11),
          COEUS_SUMS(12), COEUS_SUMS(13), COEUS_SUMS(14), COEUS_SUMS(15), COEUS_SUMS(16), COEUS_SUMS(17),
          COEUS_SUMS(18), COEUS_SUMS(19), COEUS_SUMS(20), COEUS_SUMS(21), COEUS_SUMS(22), COEUS_SUMS(23),
          COEUS_SUMS(24), COEUS_SUMS(25), COEUS_SUMS(26), COEUS_SUMS(27), COEUS_SUMS(28), COEUS_SUMS(29),
          COEUS_SUMS(30), COEUS_SUMS(31)
        : "l"(a), "l"(b), "n"(left_deep ? 0 : 1), "n"(right_deep ? 0 : 1));
#undef COEUS_SUMS
#else
    emulation::start_product(sums[0].values, a, b, left_deep, right_deep);
#endif
}

/// Ends a group of products.
__device__ inline void end_products() {
#ifdef __CUDACC__
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#else
    emulation::end_products();
#endif
}

/// Waits until at most so many groups of products, the last ones, are not done.
template <int groups>
__device__ void wait_for_products() {
#ifdef __CUDACC__
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups) : "memory");
#else
    emulation::wait_for_products(groups);
#endif
}

/// Ends a group of copies (copy_async), which may be empty.
__device__ inline void end_copies() {
#ifdef __CUDACC__
    asm volatile("cp.async.commit_group;" ::: "memory");
#else
    emulation::end_copies();
#endif
}

/// Waits until at most so many groups of copies of this thread, the last ones, are not done. After a barrier
/// that follows, all threads may start products of what was copied.
template <int groups>
__device__ void wait_for_copies_to_multiply() {
#ifdef __CUDACC__
    asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#else
    emulation::wait_for_copies(groups);
    emulation::show_to_products();
#endif
}

}  // namespace coeus::cuda
