// SPDX-License-Identifier: Apache-2.0
#include "coeus/session/rank.hpp"

#include "coeus/base/log.hpp"
#include "coeus/base/text.hpp"
#include "coeus/plan/memory.hpp"
#include "coeus/setup/device_choice.hpp"

namespace coeus {

namespace {

// This rank's share of the host's cores, near its device. Collective.
CpuShare cpu_share(const Config& config, const Device& device, const MpiRuntime& mpi) {
    const int sharing = mpi.local_ranks_with(cpu_binding()).ranks;
    NearDevice near = {.is_gpu = !device.is_host(), .processors = processors_near(device.bus_id())};
    const MpiRuntime::Alike alike = mpi.local_ranks_with(near.processors);
    near.ranks = alike.ranks;
    near.number = alike.number;
    return share_of_cpu(int(config.training.threads), mpi.local_rank(), mpi.local_size(), sharing, near);
}

// The number of threads of a process that has the host for itself.
int all_threads(int asked) {
    const CpuShare share = share_of_cpu(asked, 0, 1);
    apply(share);
    return share.threads;
}

}  // namespace

Rank::Rank(const Config& config, const MpiRuntime& mpi, StartUp& start_up)
    : local_size_(mpi.local_size()),
      chosen_(config, Communicator::world("devices"), mpi.local_rank(), mpi.local_size()),
      mesh_(start_up.make<Mesh>("mesh", Communicator::world("world"), mesh_shape(config, mpi.world_size()))),
      cpu_(cpu_share(config, chosen_.device(), mpi)) {}

LoneRank::LoneRank(const std::string& device, int threads)
    : threads_(all_threads(threads)), gpu_(gpu_of_command(device)) {}

// No rank takes more of its GPU's memory before all have looked.
void connect_by_nccl(std::optional<NcclWorld>& nccl, Rank& rank, QueueWatch* watch) {
    Mesh& mesh = rank.mesh();
    const RankTransport& transport = rank.choice().transport();
    const Communicator& world = mesh.world();
    const auto bytes_in_use = [&] {
        world.barrier();
        const int64_t bytes = rank.device().taken_bytes();
        world.barrier();
        return bytes;
    };
    const int64_t before = bytes_in_use();
    mesh.connect(nccl.emplace(*transport.nccl, world, rank.device(), watch), transport.ctas);
    const int64_t after = bytes_in_use();
    // from NCCL 2.18 on there is one of all ranks, from which the others are split
    const int64_t made = carrying_communicators(mesh.shape()) + (transport.nccl->comm_split ? 1 : 0);
    if (!rank.is_first() || made == 0) return;
    log::info("NCCL's communicators: {} of GPU memory in use before, {} after: {} each ({} are planned)",
              bytes_text(double(before)), bytes_text(double(after)),
              bytes_text(double(after - before) / double(made * rank.choice().sharing())),
              bytes_text(double(nccl_bytes(2, transport.nvls) - nccl_bytes(1, transport.nvls))));
}

}  // namespace coeus
