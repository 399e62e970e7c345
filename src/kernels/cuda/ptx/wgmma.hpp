// SPDX-License-Identifier: Apache-2.0
// Products of a warpgroup through PTX that only sm_90a has: four warps multiply matrices of bfloat16 in
// shared memory, of which the left one may be in registers, and need not wait for the sums at once. The PTX
// ISA describes all of it in "Asynchronous warpgroup level matrix instructions"; tests/stand_ins/cuda
// emulates it on the CPU.
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
/// this panel. Panels may have another number of rows than 64, a multiple of 8.
template <bool deep, int panel_rows = panel_side>
__device__ uint64_t operand_of(const bf16* panel, int depth) {
    constexpr uint64_t unit = 16, swizzle_128 = uint64_t(1) << 62;
    constexpr uint64_t of_row = panel_side * sizeof(bf16), of_panel = panel_rows * of_row;
    static_assert(of_panel % swizzle_bytes == 0);
    // from one panel to the next; not read if deep, since then the panels follow each other
    constexpr uint64_t leading = of_panel / unit;
    // from eight rows to the next eight
    constexpr uint64_t stride = 8 * of_row / unit;
    const unsigned first = shared_address(panel) + unsigned(depth * (deep ? int(sizeof(bf16)) : int(of_row)));
    return swizzle_128 | stride << 32 | leading << 16 | (first & 0x3ffff) / unit;
}

/// The operand that begins so many elements (a multiple of 8) after another one, whose memory they share. It
/// costs one addition: the place is in the lower half, and has no carry.
__device__ inline uint64_t moved(uint64_t operand, int elements) {
    constexpr uint64_t upper = ~uint64_t(0) << 32;
    return (operand & upper) | (uint32_t(operand) + unsigned(elements / piece));
}

/// A thread's share of the sums of 64 rows, and 8 columns for each of its Sums: warp w of the warpgroup has
/// rows 16 w to 16 w + 15, and sums[c] columns 8 c to 8 c + 7.
using WarpgroupSums = Sums[warpgroup_columns / 8];

/// Keeps the compiler from moving uses of the sums to the other side of this place.
template <int tiles>
__device__ void pin([[maybe_unused]] Sums (&sums)[tiles]) {
#ifdef __CUDACC__
    COEUS_UNROLL
    for (int c = 0; c < tiles; ++c) {
        COEUS_UNROLL
        for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(sums[c].values[i])::"memory");
    }
#endif
}

/// Must come before the first product of a group: what threads did until now with the sums, and with operands
/// in registers, is done.
__device__ inline void begin_products() {
#ifdef __CUDACC__
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#else
    emulation::begin_products();
#endif
}

#ifdef __CUDACC__
// the registers of sums with so many columns
#define COEUS_REGISTERS_32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define COEUS_REGISTERS_64 \
    COEUS_REGISTERS_32     \
    ", "                   \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define COEUS_REGISTERS_128                                                                 \
    COEUS_REGISTERS_64                                                                      \
    ", "                                                                                    \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, " \
    "%49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define COEUS_REGISTERS_192                                                                 \
    COEUS_REGISTERS_128                                                                     \
    ", "                                                                                    \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, " \
    "%81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define COEUS_REGISTERS_256                                                                  \
    COEUS_REGISTERS_192                                                                      \
    ", "                                                                                     \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, " \
    "%111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, "   \
    "%125, %126, %127"
#define COEUS_SUM(c) \
    "+f"(sums[c].values[0]), "+f"(sums[c].values[1]), "+f"(sums[c].values[2]), "+f"(sums[c].values[3])
#define COEUS_SUMS_32(c) COEUS_SUM(c), COEUS_SUM(c + 1), COEUS_SUM(c + 2), COEUS_SUM(c + 3)
#define COEUS_SUMS_64(c) COEUS_SUMS_32(c), COEUS_SUMS_32(c + 4)
#define COEUS_SUMS_128(c) COEUS_SUMS_64(c), COEUS_SUMS_64(c + 8)
#define COEUS_SUMS_192(c) COEUS_SUMS_128(c), COEUS_SUMS_64(c + 16)
#define COEUS_SUMS_256(c) COEUS_SUMS_128(c), COEUS_SUMS_128(c + 16)
// `operands`: the numbers of the inputs, which follow the sums
#define COEUS_PRODUCT_OF_SHARED(columns, operands)                                  \
    if constexpr (tiles * 8 == columns)                                             \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #columns                       \
                 "k16.f32.bf16.bf16 {" COEUS_REGISTERS_##columns "}, " operands ";" \
                 : COEUS_SUMS_##columns(0)                                          \
                 : "l"(a), "l"(b), "n"(adds ? 1 : 0), "n"(left_deep ? 0 : 1), "n"(right_deep ? 0 : 1))
#define COEUS_PRODUCT_OF_REGISTERS(columns, operands)                                          \
    if constexpr (tiles * 8 == columns)                                                        \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #columns                                  \
                 "k16.f32.bf16.bf16 {" COEUS_REGISTERS_##columns "}, " operands ";"            \
                 : COEUS_SUMS_##columns(0)                                                     \
                 : "r"(a.parts[0]), "r"(a.parts[1]), "r"(a.parts[2]), "r"(a.parts[3]), "l"(b), \
                   "n"(right_deep ? 0 : 1))
#endif

/// Starts sums[64 x columns] += a[64 x 16] b[16 x columns], or = if not `adds`. All threads of the warpgroup
/// call it, with operand_of() of a and of b. Neither the sums nor the operands may be touched until
/// wait_for_products().
template <bool left_deep, bool right_deep, bool adds = true, int tiles>
__device__ void start_product(Sums (&sums)[tiles], uint64_t a, uint64_t b) {
#ifdef __CUDACC__
    static_assert(tiles == 4 || tiles == 8 || tiles == 16 || tiles == 32);
    COEUS_PRODUCT_OF_SHARED(32, "%16, %17, %18, 1, 1, %19, %20");
    COEUS_PRODUCT_OF_SHARED(64, "%32, %33, %34, 1, 1, %35, %36");
    COEUS_PRODUCT_OF_SHARED(128, "%64, %65, %66, 1, 1, %67, %68");
    COEUS_PRODUCT_OF_SHARED(256, "%128, %129, %130, 1, 1, %131, %132");
#else
    emulation::start_product(sums[0].values, tiles * 8,
                             {.a = a, .b = b, .a_deep = left_deep, .b_deep = right_deep, .adds = adds});
#endif
}

/// Starts sums[64 x columns] += a[64 x 16] b[16 x columns] with a in registers: each warp has its 16 rows.
template <bool right_deep, int tiles>
__device__ void start_product(Sums (&sums)[tiles], const Fragment& a, uint64_t b) {
#ifdef __CUDACC__
    static_assert(tiles == 8 || tiles == 16 || tiles == 24);
    COEUS_PRODUCT_OF_REGISTERS(64, "{%32, %33, %34, %35}, %36, 1, 1, 1, %37");
    COEUS_PRODUCT_OF_REGISTERS(128, "{%64, %65, %66, %67}, %68, 1, 1, 1, %69");
    COEUS_PRODUCT_OF_REGISTERS(192, "{%96, %97, %98, %99}, %100, 1, 1, 1, %101");
#else
    emulation::start_product(sums[0].values, tiles * 8, {.registers = a.parts, .b = b, .b_deep = right_deep});
#endif
}

#undef COEUS_PRODUCT_OF_SHARED
#undef COEUS_PRODUCT_OF_REGISTERS

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

/// Changes the registers of each thread of this warpgroup, all of which call it: fewer, which other
/// warpgroups may take, or more, for which it waits. `count`: a multiple of 8.
template <int count>
__device__ void give_registers() {
#ifdef __CUDACC__
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
#endif
}
template <int count>
__device__ void take_registers() {
#ifdef __CUDACC__
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
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
