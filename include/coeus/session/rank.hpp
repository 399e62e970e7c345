// SPDX-License-Identifier: Apache-2.0
// Rank: where this process computes: its device, its place in the mesh, and its cores.
#pragma once

#include "coeus/comm/mesh.hpp"
#include "coeus/comm/mpi.hpp"
#include "coeus/comm/nccl_world.hpp"
#include "coeus/config/config.hpp"
#include "coeus/device/cpu.hpp"
#include "coeus/observe/start_up.hpp"
#include "coeus/session/rank_device.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace coeus {

class Rank {
public:
    /// Chooses the device and makes the communicators of the mesh, as the deck asks; neither binds the
    /// process to cores nor takes memory of the device. Adds the phase "mesh" to `start_up`. ConfigError as
    /// RankDevice, mesh_shape() and share_of_cpu(). Collective over the world.
    Rank(const Config& config, const MpiRuntime& mpi, StartUp& start_up);

    const Device& device() const { return chosen_.device(); }
    /// What was chosen, and why.
    const RankDevice& choice() const { return chosen_; }
    Mesh& mesh() { return mesh_; }
    const Mesh& mesh() const { return mesh_; }
    const Communicator& world() const { return mesh_.world(); }
    bool is_first() const { return world().rank() == 0; }
    const CpuShare& cpu() const { return cpu_; }
    /// Ranks of this host.
    int local_size() const { return local_size_; }
    /// Bytes of its device, and of its host, that the rank may use.
    int64_t memory_bytes() const { return device().memory_bytes() / chosen_.sharing(); }
    int64_t host_memory_bytes() const { return memory_limit_bytes() / local_size_; }

private:
    int local_size_;
    RankDevice chosen_;
    Mesh mesh_;
    CpuShare cpu_;
};

/// Connects the ranks by the NCCL that they have chosen, and logs what its communicators take of a GPU's
/// memory. `watch`: see NcclWorld. Collective.
void connect_by_nccl(std::optional<NcclWorld>& nccl, Rank& rank, QueueWatch* watch);

/// The processors of a command of one process, which needs no MPI.
class LoneRank {
public:
    /// A GPU if `device` ("auto", "cuda" or "cpu") asks for one and there is one, with errors as
    /// gpu_of_command(); `threads` of the host, 0: all cores. Binds the process to its cores, if it has some
    /// of its own.
    LoneRank(const std::string& device, int threads);

    const Device& device() const { return gpu_ ? *gpu_ : host_device(); }
    int threads() const { return threads_; }

private:
    int threads_;
    std::unique_ptr<Device> gpu_;
};

}  // namespace coeus
