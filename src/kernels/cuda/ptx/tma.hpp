// SPDX-License-Identifier: Apache-2.0
// Copies of boxes of matrices by Hopper's TMA (tensor memory accelerator) through PTX, and the barriers in
// shared memory that tell when they have arrived. One thread starts a copy of a whole box; no thread waits
// for it unless it uses the barrier. The PTX ISA describes all of it in "mbarrier" and "Tensors";
// tests/stand_ins/cuda emulates it on the CPU.
#pragma once

#include "wgmma.hpp"

#include <cuda.h>

namespace coeus::cuda {

/// A barrier in shared memory, at a multiple of 8 bytes (PTX's mbarrier). It has phases, one after the other,
/// of parity 0, 1, 0, and so on. A phase ends when a fixed number of arrivals has come, and all bytes that
/// were expected in it. Then the next one begins. One thread calls begin(), and show_barriers() after it; the
/// others may use the barrier after a __syncthreads() that follows.
class Barrier {
public:
    __device__ void begin(int arrivals) {
#ifdef __CUDACC__
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(this)), "r"(arrivals)
                     : "memory");
#else
        emulation::begin_barrier(this, unsigned(arrivals));
#endif
    }
    /// What this thread has done before is done for threads that wait for this phase.
    __device__ void arrive() {
#ifdef __CUDACC__
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(this)) : "memory");
#else
        emulation::arrive(this, 0);
#endif
    }
    /// Arrives, and lets the phase also wait for so many bytes of copies that this thread starts next.
    __device__ void arrive_and_expect(int bytes) {
#ifdef __CUDACC__
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(this)),
                     "r"(bytes)
                     : "memory");
#else
        emulation::arrive(this, unsigned(bytes));
#endif
    }
    /// Waits for the end of the phase with this parity, which is the one under way or the one before it.
    __device__ void wait(int parity) {
#ifdef __CUDACC__
        unsigned has_ended = 0;
        do {
            asm volatile(
                "{\n"
                ".reg .pred has_ended;\n"
                "mbarrier.try_wait.parity.shared::cta.b64 has_ended, [%1], %2;\n"
                "selp.u32 %0, 1, 0, has_ended;\n"
                "}"
                : "=r"(has_ended)
                : "r"(shared_address(this)), "r"(parity)
                : "memory");
        } while (has_ended == 0);
#else
        emulation::wait_for_phase(this, unsigned(parity));
#endif
    }

private:
    [[maybe_unused]] uint64_t state_;
};

/// Shows the barriers that this thread has begun to the TMA and to other threads.
__device__ inline void show_barriers() {
#ifdef __CUDACC__
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#else
    emulation::show_barriers();
#endif
}

/// Starts to copy a box of matrix `matrix` of a stack (boxes_of()), from this column and row on, with zeros
/// beyond the matrix. `to`: at a multiple of swizzle_bytes. All bytes of the box, zeros too, count for the
/// barrier, which must expect them. Products may read the box after a wait for the barrier's phase.
__device__ inline void copy_box(bf16* to, const CUtensorMap& stack, Barrier& barrier, int64_t column,
                                int64_t row, int64_t matrix) {
#ifdef __CUDACC__
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, "
        "%5}], [%2];" ::"r"(shared_address(to)),
        "l"(&stack), "r"(shared_address(&barrier)), "r"(int(column)), "r"(int(row)), "r"(int(matrix))
        : "memory");
#else
    emulation::copy_box(to, stack, &barrier, {column, row, matrix});
#endif
}

}  // namespace coeus::cuda
