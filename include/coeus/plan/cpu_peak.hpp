// SPDX-License-Identifier: Apache-2.0
// The peak rates of this CPU, to which MFU refers.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/kernels/kernels.hpp"

#include <string>

namespace coeus {

/// FLOP/s that the CPU's own GEMM reaches in `dtype` with this Exec's threads while all `ranks` compute: the
/// best of 0.2 s of 1024 x 1024 x 1024 products, or of an earlier start. `cache_file` (of the first rank; "":
/// none) keeps the measurements of earlier starts by CPU, threads and type: the second to the fourth start
/// measure for 0.02 s, later ones not at all. A file that cannot be read or written is ignored without a
/// message. Collective.
double cpu_peak_flops(Exec& exec, const Kernels& kernels, Dtype dtype, const std::string& cpu,
                      const std::string& cache_file, const Communicator& ranks);

}  // namespace coeus
