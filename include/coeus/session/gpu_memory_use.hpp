// SPDX-License-Identifier: Apache-2.0
// What the run took of the GPUs' memory, against its plan: libraries allocate memory that a plan only
// estimates.
#pragma once

#include "coeus/comm/communicator.hpp"

#include <cstdint>
#include <string>

namespace coeus {

/// The rank that took the most beyond its plan, or left the least of it.
struct GpuMemoryUse {
    int rank = -1;  ///< -1: no rank knows
    int64_t planned = 0, taken = 0;

    /// More than 3 % beyond the plan.
    bool exceeds_plan() const { return double(taken) > 1.03 * double(planned); }
    /// One line. `when`: "after the first step".
    std::string text(const std::string& when) const;
};

/// Compares the ranks. `taken`: Device::taken_bytes(). `alone`: no other rank uses this rank's GPU; else its
/// bytes are not known. Collective.
GpuMemoryUse gpu_memory_use(const Communicator& world, int64_t planned, int64_t taken, bool alone);

}  // namespace coeus
