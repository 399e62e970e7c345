// SPDX-License-Identifier: Apache-2.0
// Which kernel computes products of experts' rows on tensor cores.
#pragma once

#include <cstdint>

namespace coeus {
class Device;
}

namespace coeus::cuda {

/// All sum in the same order and give the same bits.
enum class GroupedKernel : uint8_t { mma, wgmma, tma };

struct GroupedChoice {
    GroupedKernel kernel = GroupedKernel::mma;
    /// Also for products with few rows for each group, which mma computes otherwise: its tiles are smaller.
    bool few_rows = false;
};

/// On Hopper, wgmma with copies by TMA, which was the fastest one for all sizes measured
/// (doc/performance.md); mma on other GPUs. The environment variable COEUS_EXPERTS_WGMMA chooses another one:
/// 0 is mma, 1 is wgmma with copies by cp.async, tma is wgmma with copies by TMA; the last two for products
/// with few rows as well. If the usual kernel of the GPU, or the one that is asked for, cannot run, a warning
/// gives the reason and says which one is used.
GroupedChoice grouped_choice(const Device& gpu);

}  // namespace coeus::cuda
