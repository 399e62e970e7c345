// SPDX-License-Identifier: Apache-2.0
// How fast the memory of a device copies, to which the rates of kernels are compared.
#pragma once

#include "coeus/kernels/kernels.hpp"

namespace coeus {

/// A copy within a device's memory.
struct CopyRate {
    double bytes_per_second = 0;  ///< read plus written
    int64_t bytes = 0;            ///< read by a copy
    bool by_kernel = true;        ///< by our own kernel (cast); false: by the driver's copy
};

/// The most bytes that a copy on a GPU reads; fewer if the GPU has little free memory.
inline constexpr int64_t most_copied_bytes = int64_t(1) << 30;

/// The rate of a copy where the Exec runs. On the host: 64 MiB with this Exec's threads, the best of several.
/// On a GPU: five copies in one interval of its clock, by our own kernel and by the driver, the faster of
/// both. Copies are so large that they take 0.4 ms or read most_copied_bytes, but both blocks together have
/// at most an eighth of the memory that is free now, and no size takes the host longer than 0.1 s if there is
/// a smaller one. Allocates memory of the device: not for the training loop.
CopyRate copy_rate(Exec& exec, const Kernels& kernels);

}  // namespace coeus
