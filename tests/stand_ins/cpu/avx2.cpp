// SPDX-License-Identifier: Apache-2.0
// A processor without AVX-512, for coeus_kernels_v3 and its tests: these are compiled with another name for
// cpu_vector_level(), and this file defines the function of that name.
#include "coeus/device/cpu.hpp"

namespace coeus {

std::string cpu_vector_level() {
    return "avx2";
}

}  // namespace coeus
