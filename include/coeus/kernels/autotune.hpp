// SPDX-License-Identifier: Apache-2.0
// Products on a GPU: which of the library's algorithms is taken.
#pragma once

#include "coeus/device/exec.hpp"

#include <string>

namespace coeus {

/// Products of this Exec, which has run none yet, take the fastest of the algorithms that cuBLASLt suggests,
/// found at the first use of each shape and kept in files below `folder`, by GPU and version of the library;
/// what is kept is taken without a search. Without this call, where the folder cannot be written to, and
/// where a shape is first met while a CUDA graph is captured, it is cuBLASLt's first suggestion. Nothing on
/// the CPU.
void autotune_products(Exec& exec, const std::string& folder);

}  // namespace coeus
