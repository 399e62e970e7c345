// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/gpu.hpp"
#include "stand_ins/cuda/cublasLt.h"
#include "stand_ins/cuda/cuda.h"

namespace coeus::test {

/// A GPU of an architecture; afterwards, GPUs have the usual one again.
class PretendedGpu {
public:
    explicit PretendedGpu(int architecture) {
        emulation::architecture = architecture;
        gpu_ = open_gpu(0);
    }
    ~PretendedGpu() {
        emulation::architecture = 90;
        emulation::set_cublas_version(130000);
        emulation::set_vector_products(true);
    }
    PretendedGpu(const PretendedGpu&) = delete;
    PretendedGpu& operator=(const PretendedGpu&) = delete;
    const Device& get() const { return *gpu_; }

private:
    std::unique_ptr<Device> gpu_;
};

/// While it lives, the driver is too old to describe matrices.
struct WithoutMaps {
    WithoutMaps() { emulation::has_tensor_maps = false; }
    ~WithoutMaps() { emulation::has_tensor_maps = true; }
    WithoutMaps(const WithoutMaps&) = delete;
    WithoutMaps& operator=(const WithoutMaps&) = delete;
};

}  // namespace coeus::test
