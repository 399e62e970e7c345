// SPDX-License-Identifier: Apache-2.0
// Tensor cores and asynchronous copies through PTX, from sm_80 on: what a warp does together with matrices of
// bfloat16, and from sm_89 on of 8-bit floats. All 32 lanes must call load_matrices, multiply_add and
// multiply_add_e4m3 together. The PTX ISA describes which lane has which elements in "Matrix fragments for
// mma.m16n8k16", "for mma.m16n8k32" and "ldmatrix"; tests/stand_ins/cuda emulates it on the CPU.
#pragma once

#include "../rows/team.hpp"
#include "coeus/base/small_floats.hpp"
#include "coeus/device/tensor.hpp"

#include <algorithm>
#include <initializer_list>

namespace coeus::cuda {

/// Rows of a product on tensor cores, and number of elements that are copied together.
constexpr int mma_rows = 16, piece = 8;

/// True if the rows of all operands begin at multiples of 16 bytes.
inline bool in_pieces(std::initializer_list<Tensor> operands) {
    return std::all_of(operands.begin(), operands.end(), [](const Tensor& t) {
        return reinterpret_cast<uintptr_t>(t.data) % 16 == 0 && t.ld * size_of(t.dtype) % 16 == 0;
    });
}

/// Elements from one row of a tile to the next: an odd number of pieces. So the eight rows that ldmatrix
/// reads at once, at one column, are in eight different groups of four banks, whatever the width.
template <class T = bf16>
constexpr int tile_pitch(int width) {
    return width + 16 / int(sizeof(T));
}

/// The lane's place in the fragments.
struct Lane {
    int lane = int(threadIdx.x) % warp_size, row = lane / 4, column = lane % 4 * 2;
};

/// A lane's share of four 8x8 matrices of bf16, with two elements in each part. As the left operand of a
/// product it is a 16x16 matrix, made of the matrices (rows 0-7, columns 0-7), (8-15, 0-7), (0-7, 8-15),
/// (8-15, 8-15).
struct Fragment {
    uint32_t parts[4];
};

/// A lane's share of 16x8 sums: lane 4 g + t has the elements (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t +
/// 1).
struct Sums {
    float values[4];
};

/// Loads four matrices from shared memory, or their transposes. Lane 8 m + r passes the address of row r of
/// matrix m, 16 bytes. Lane 4 r + t gets elements 2t and 2t + 1 of row r (of the transpose).
template <bool transposed = false>
__device__ Fragment load_matrices(const void* row) {
    Fragment f;
#ifdef __CUDACC__
    uint32_t* const to = f.parts;
    const unsigned from = unsigned(__cvta_generic_to_shared(row));
    if constexpr (transposed)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(from)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(from)
                     : "memory");
#else
    emulation::load_matrices(f.parts, row, transposed);
#endif
    return f;
}

/// sums[16x8] += a[16x16] b[16x8]. Lane 4 g + t passes the elements (2t, g) and (2t + 1, g) of b as `first`,
/// and those 8 rows further down as `second`.
__device__ inline void multiply_add(Sums& sums, const Fragment& a, uint32_t first, uint32_t second) {
#ifdef __CUDACC__
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums.values[0]), "+f"(sums.values[1]), "+f"(sums.values[2]), "+f"(sums.values[3])
        : "r"(a.parts[0]), "r"(a.parts[1]), "r"(a.parts[2]), "r"(a.parts[3]), "r"(first), "r"(second));
#else
    emulation::multiply_add(sums.values, a.parts, first, second);
#endif
}

/// sums[16x8] += a[16x32] b[32x8] of E4M3 codes, four of a row of a in each part: lane 4 g + t passes columns
/// 4t to 4t + 3 of rows g and g + 8, and those 16 further on; of b, it passes the elements (4t, g) to
/// (4t + 3, g) as `first`, and those 16 rows further down as `second`. The kernels that call it are not
/// compiled for sm_80, which does not have it.
__device__ inline void multiply_add_e4m3(Sums& sums, const Fragment& a, uint32_t first, uint32_t second) {
#ifdef __CUDACC__
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums.values[0]), "+f"(sums.values[1]), "+f"(sums.values[2]), "+f"(sums.values[3])
        : "r"(a.parts[0]), "r"(a.parts[1]), "r"(a.parts[2]), "r"(a.parts[3]), "r"(first), "r"(second));
#else
    emulation::multiply_add_e4m3(sums.values, a.parts, first, second);
#endif
}

/// Four of the bytes of two words (0 to 3 of the first, 4 to 7 of the second), chosen by the hexadecimal
/// digits of `choice`, of which the last one is that of the lowest byte.
__device__ inline uint32_t chosen_bytes(uint32_t first, uint32_t second, uint32_t choice) {
#ifdef __CUDACC__
    return __byte_perm(first, second, choice);
#else
    const uint64_t both = uint64_t(second) << 32 | first;
    uint32_t chosen = 0;
    for (int i = 0; i < 4; ++i) chosen |= uint32_t(both >> (choice >> (4 * i) & 7) * 8 & 255) << (8 * i);
    return chosen;
#endif
}

/// The code of a number, as encode() has it but for the sign of NaN. One instruction from sm_89 on.
template <class Format>
__device__ uint8_t encode_by_gpu(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
    return encode<Format>(x);
#elif defined(__CUDACC__)
    uint16_t pair;  // of the codes of 0 and x
    if constexpr (Format::fraction == 3)
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
    else
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
    return uint8_t(pair);
#else
    return emulation::code_of(x, Format::fraction == 3);
#endif
}

/// Rounds two numbers to nearest even; the first one is in the lower half.
__device__ inline uint32_t pair_of(float first, float second) {
#ifdef __CUDACC__
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
#else
    return uint32_t(bf16(second).bits) << 16 | bf16(first).bits;
#endif
}

/// Starts to copy 4 or 16 bytes from global to shared memory, or writes zeros there without reading. Both
/// addresses are multiples of that size. The bytes are visible to this thread after wait_for_copies(), and to
/// the others after a barrier that follows it.
template <int bytes>
__device__ void copy_async(void* to, const void* from, bool or_zeros) {
    static_assert(bytes == 4 || bytes == 16);
#ifdef __CUDACC__
    const unsigned shared = unsigned(__cvta_generic_to_shared(to));
    const int taken = or_zeros ? 0 : bytes;
    if constexpr (bytes == 16)  // bypasses the L1 cache: other blocks of the SM rarely read the data
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(from), "r"(taken)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared), "l"(from), "r"(taken)
                     : "memory");
#else
    emulation::copy_async(to, or_zeros ? nullptr : from, bytes);
#endif
}
/// Waits for all copies that this thread has started.
__device__ inline void wait_for_copies() {
#ifdef __CUDACC__
    asm volatile("cp.async.wait_all;" ::: "memory");
#else
    emulation::wait_for_copies();
#endif
}

/// Stores two adjacent elements of a result, or adds to them.
template <class O>
__device__ void put_pair(O* to, float first, float second, bool accumulate) {
    if (accumulate) {
        const Pack<O, 2> old = load_pack<2>(to);
        first += load(old.values[0]);
        second += load(old.values[1]);
    }
    store_pack<2>(to, Pack<O, 2>{{store<O>(first), store<O>(second)}});
}

}  // namespace coeus::cuda
