// SPDX-License-Identifier: Apache-2.0
// Where the ranks of a host compute: which GPU, on how many cores beside it, and what is wrong with that.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/device/gpu_monitor.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace coeus {

/// The GPU of a rank.
struct GpuOfRank {
    std::string host, bus_id;
    bool operator==(const GpuOfRank&) const = default;
    std::string text() const { return "GPU " + bus_id + " of host " + host; }
};
/// The GPUs of all ranks, in their order. Collective.
std::vector<GpuOfRank> gpus_of_ranks(const Communicator& world, const Device& device);

/// What a rank should use of its host.
struct GpuPlacement {
    int number = 0;       ///< of the GPU, among those that the rank sees
    double cores = 1;     ///< of the host for each rank (cores_per_rank())
    std::string warning;  ///< of ranks that are bound far from their GPU, the same on all ranks; empty: none
};
/// Chooses a GPU near the cores to which this rank is bound (nearest_gpus()), for rank `local_rank` of the
/// `local_size` ranks of this host. `gpus`: how many it sees, at least one. Ranks of a host that see
/// different GPUs use them in their order. Collective. Tests pass another folder as `root`.
GpuPlacement place_on_gpu(const Communicator& world, int local_rank, int local_size, int gpus,
                          const std::filesystem::path& root = "/");

/// A warning if other processes hold more than 2 GiB of a rank's GPU; else "". The same on all ranks. `nvml`:
/// the driver's library, which may be absent. Collective; called before this run uses the GPUs.
std::string foreign_memory_warning(const Communicator& world, const std::string& bus_id,
                                   const std::string& nvml = GpuMonitor::default_library);

/// A warning if a rank cannot open the GPU of another rank of its host, which keeps NCCL from using NVLink
/// between them; else "". The same on all ranks. `nvml`: the driver's library. Collective.
std::string isolation_warning(const Communicator& world, const std::vector<GpuOfRank>& gpus,
                              const std::string& nvml = GpuMonitor::default_library);

}  // namespace coeus
