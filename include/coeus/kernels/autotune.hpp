// SPDX-License-Identifier: Apache-2.0
// The search for the fastest algorithm of matrix products on a GPU.
#pragma once

#include "coeus/device/exec.hpp"

#include <string>

namespace coeus {

/// Makes the products of this Exec, which must not have run any yet, use the fastest of the algorithms that
/// cuBLASLt suggests. The fastest is found at the first use of each shape and kept in a file below `folder`,
/// by GPU and library version; a kept algorithm is used without a search. cuBLASLt's first suggestion is used
/// without this call, if the folder cannot be written to, and for a shape that is first met while a CUDA
/// graph is captured. Does nothing on the CPU.
void autotune_products(Exec& exec, const std::string& folder);

}  // namespace coeus
