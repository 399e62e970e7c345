// SPDX-License-Identifier: Apache-2.0
// The PTX instructions that src/kernels/cuda/ptx/mma.hpp uses, for the CPU: fragments of matrices by the
// tables of the PTX ISA, and copies whose bytes arrive as late as allowed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace coeus::emulation {

/// ldmatrix.x4, optionally .trans: called by all lanes of the warp, each with the address of a row, a
/// multiple of 16 bytes.
void load_matrices(uint32_t (&parts)[4], const void* row, bool transposed);

/// mma.m16n8k16 of bf16 with float sums: called by all lanes of the warp.
void multiply_add(float (&sums)[4], const uint32_t (&a)[4], uint32_t b_first, uint32_t b_second);

/// mma.m16n8k32 of E4M3 with float sums: called by all lanes of the warp.
void multiply_add_e4m3(float (&sums)[4], const uint32_t (&a)[4], uint32_t b_first, uint32_t b_second);

/// With true, sums of products of E4M3 keep 13 bits of their fraction, as those of some GPUs do.
inline bool shortens_sums = false;

/// cvt.rn.satfinite to E4M3 (else E5M2): the nearest code, of two equally near ones the even one; the largest
/// code for what is larger, also for infinity. The code of NaN has no sign.
uint8_t code_of(float x, bool e4m3);

/// cp.async: the destination is NaN from now on, and gets the bytes (zeros without a source) when this thread
/// waits.
void copy_async(void* to, const void* from, size_t bytes);
void wait_for_copies();

}  // namespace coeus::emulation
