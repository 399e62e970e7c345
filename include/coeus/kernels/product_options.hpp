// SPDX-License-Identifier: Apache-2.0
// How cuBLASLt computes the matrix products of a GPU.
#pragma once

#include "coeus/device/exec.hpp"

#include <cstdint>
#include <string>

namespace coeus {

/// Which of the kept algorithms are timed again when they are first used: none; those that were timed more
/// than 30 days ago, or never; all.
enum class Recheck : uint8_t { none, old, all };

struct ProductOptions {
    /// The fastest of the algorithms that cuBLASLt suggests is found at the first use of each shape and kept
    /// in a file below this folder, by GPU and library version. Empty: the first suggestion is used, as it is
    /// if the folder cannot be written to, and for a shape that is first met while a CUDA graph is captured.
    std::string folder = {};
    /// A kept algorithm is used without a search. If it is timed again and takes 5 % longer than the first
    /// suggestion, a warning says so; it is used nevertheless.
    Recheck recheck = Recheck::none;
    int sm_margin = 0;        ///< multiprocessors that products leave free; fewer than the GPU has
    bool allow_tf32 = false;  ///< operands in float32 are rounded to TF32, for tensor cores
};
/// Sets the options of this Exec, which must not have run a product yet. Does nothing on the CPU.
void set_product_options(Exec& exec, const ProductOptions& options);

}  // namespace coeus
