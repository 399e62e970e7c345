// SPDX-License-Identifier: Apache-2.0
// What src/kernels/cuda/mma.hpp takes from PTX, for the CPU: fragments of matrices by the tables of the PTX
// ISA, copies whose bytes come as late as they may.
#pragma once

#include <cstddef>
#include <cstdint>

namespace coeus::emulation {

/// ldmatrix.x4, or .trans: all lanes of the warp, each with the address of a row, a multiple of 16 bytes.
void load_matrices(uint32_t (&parts)[4], const void* row, bool transposed);

/// mma.m16n8k16 of bf16 with float sums: all lanes of the warp.
void multiply_add(float (&sums)[4], const uint32_t (&a)[4], uint32_t b_first, uint32_t b_second);

/// cp.async: NaN from now on, the bytes (zeros without a source) when this thread waits.
void copy_async(void* to, const void* from, size_t bytes);
void wait_for_copies();

}  // namespace coeus::emulation
