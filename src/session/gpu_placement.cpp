// SPDX-License-Identifier: Apache-2.0
#include "gpu_placement.hpp"

#include "coeus/base/host_name.hpp"
#include "coeus/base/text.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/device/cpu.hpp"
#include "coeus/device/device.hpp"
#include "coeus/device/gpu_choice.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace coeus {

namespace {

// The text of the lowest rank whose text is not empty, after "rank N "; and how many ranks have one.
struct FirstText {
    std::string text;
    int64_t ranks = 0;
};
FirstText first_text(const Communicator& world, const std::string& own) {
    const int64_t ranks = world.all_reduce(int64_t(!own.empty()));
    if (ranks == 0) return {};
    const auto first =
        int(-world.all_reduce(-int64_t(own.empty() ? world.size() : world.rank()), Reduce::max));
    return {fmt::format("rank {} {}", first, broadcast_text(world, own, first)), ranks};
}

}  // namespace

std::vector<GpuOfRank> gpus_of_ranks(const Communicator& world, const Device& device) {
    const std::vector<std::string> hosts = gather_texts(world, host_name()),
                                   bus_ids = gather_texts(world, device.bus_id());
    std::vector<GpuOfRank> gpus;
    for (size_t rank = 0; rank < hosts.size(); ++rank) gpus.push_back({hosts[rank], bus_ids[rank]});
    return gpus;
}

GpuPlacement place_on_gpu(const Communicator& world, int local_rank, int local_size, int gpus,
                          const std::filesystem::path& root) {
    std::vector<std::string> ids, near_to;
    std::string list;
    together(world, [&] {
        for (int gpu = 0; gpu < gpus; ++gpu) {
            ids.push_back(gpu_bus_id(gpu));
            list += ids.back() + ' ';
            near_to.push_back(processors_near(ids.back(), root));
        }
    });
    const std::vector<std::string> hosts = gather_texts(world, host_name()),
                                   bindings = gather_texts(world, cpu_binding()),
                                   seen = gather_texts(world, list);
    const auto own = size_t(world.rank());
    std::vector<std::string> bound_to;  // the ranks of this host
    bool all_see_the_same = true;
    for (size_t rank = 0; rank < hosts.size(); ++rank)
        if (hosts[rank] == hosts[own]) {
            bound_to.push_back(bindings[rank]);
            all_see_the_same = all_see_the_same && seen[rank] == seen[own];
        }
    GpuPlacement placement = {
        .number = local_rank % gpus,
        .cores = cores_per_rank(local_size, int(std::ranges::count(bound_to, bindings[own])))};
    if (all_see_the_same && int(bound_to.size()) == local_size)
        placement.number = nearest_gpus(bound_to, near_to)[size_t(local_rank)];
    const auto number = size_t(placement.number);
    std::string far;
    if (!share_processors(bindings[own], near_to[number]))
        far = fmt::format("is bound to the processors {}, but its GPU {} is near the processors {}",
                          bindings[own], ids[number], near_to[number]);
    if (const FirstText first = first_text(world, far); first.ranks > 0)
        placement.warning = fmt::format(
            "{}. Copies to such a GPU pass through other processors; this concerns {} of {} ranks. Start "
            "with srun --distribution=block:block, or with mpirun --bind-to none",
            first.text, first.ranks, world.size());
    return placement;
}

std::string foreign_memory_warning(const Communicator& world, const std::string& bus_id,
                                   const std::string& nvml) {
    constexpr uint64_t of_the_driver = uint64_t(2) << 30;  // the driver itself keeps up to 1 GiB
    GpuSample sample;
    if (const auto gpu = GpuMonitor::of_bus_id(bus_id, nvml)) sample = gpu->sample();
    const uint64_t used = sample.memory_used.value_or(0), total = sample.memory_total.value_or(0);
    const FirstText first = first_text(
        world, used > of_the_driver
                   ? fmt::format("starts on GPU {} of host {}, of whose {} other processes hold {}", bus_id,
                                 host_name(), bytes_text(double(total)), bytes_text(double(used)))
                   : "");
    if (first.ranks == 0) return "";
    return fmt::format(
        "{} ({} of {} ranks have such a GPU). `nvidia-smi` lists them: end them, or choose another GPU "
        "(CUDA_VISIBLE_DEVICES)",
        first.text, first.ranks, world.size());
}

std::string isolation_warning(const Communicator& world, const std::vector<GpuOfRank>& gpus,
                              const std::string& nvml) {
    const GpuOfRank& own = gpus[size_t(world.rank())];
    std::vector<std::string> of_host;
    for (const GpuOfRank& gpu : gpus)
        if (gpu.host == own.host) of_host.push_back(gpu.bus_id);
    const std::vector<std::string> hidden = GpuMonitor::hidden(of_host, nvml);
    // if its own is hidden too, the driver does not tell
    const bool tells = std::ranges::find(hidden, own.bus_id) == hidden.end();
    const FirstText first =
        first_text(world, hidden.empty() || !tells
                              ? ""
                              : fmt::format("cannot open GPU {}, on which another rank of host {} computes",
                                            hidden[0], own.host));
    if (first.ranks == 0) return "";
    return fmt::format(
        "{} ({} of {} ranks have such a GPU): NCCL cannot use NVLink between them. Let each rank open all "
        "GPUs: "
        "with Slurm give --gpus-per-node and --gpu-bind=none instead of --gpus-per-task or another "
        "--gpu-bind",
        first.text, first.ranks, world.size());
}

}  // namespace coeus
