// SPDX-License-Identifier: Apache-2.0
// Which kernel computes products of experts' rows on tensor cores.
#pragma once

#include "coeus/kernels/product_options.hpp"

#include <optional>

namespace coeus {
class Device;
}

namespace coeus::cuda {

struct GroupedChoice {
    ExpertsKernel kernel = ExpertsKernel::mma;
    bool few_rows = false;  ///< also for products with few rows for each group
};

/// The kernel that ProductOptions::experts asks for, or the usual one of the GPU. If it cannot run, warns
/// with the reason and chooses another one.
GroupedChoice grouped_choice(const Device& gpu, std::optional<ExpertsKernel> asked);

}  // namespace coeus::cuda
