// SPDX-License-Identifier: Apache-2.0
// The emulated GPU of tests/gpu.
#include "gpu/gpu.hpp"

#include "stand_ins/cuda/block.hpp"
#include "stand_ins/cuda/runtime.hpp"

#include <cstdlib>

namespace coeus::test {

const Device& the_gpu() {
    static const auto gpu = open_gpu(0);
    return *gpu;
}

void set_order(uint64_t seed) {
    emulation::set_seed(seed);
}

void choose_cudnn() {
    setenv("COEUS_CUDNN", "stand-in", 1);
}

void let_streams_starve(bool some) {
    emulation::let_streams_starve(some);
}

size_t gpu_allocations() {
    return emulation::allocations();
}

double seconds_of_kernel() {
    return 1e-6;
}

double error_of_8_bit_sums() {
    return 0;
}

size_t gpu_waits() {
    return emulation::waits();
}

}  // namespace coeus::test
