// SPDX-License-Identifier: Apache-2.0
// The CUDA kernels, one function for each entry of the table. Tensors are in device memory.
#pragma once

#include "../math.hpp"
#include "../observed.hpp"

namespace coeus::cuda {

using namespace rows;

/// The functions of the table's entries.
struct Cuda {
#define COEUS_FUNCTION(name) static Function<decltype(Kernels::name)> name;
    COEUS_EACH_KERNEL(COEUS_FUNCTION)
#undef COEUS_FUNCTION
};

}  // namespace coeus::cuda
