// SPDX-License-Identifier: Apache-2.0
#include "coeus/session/rank_device.hpp"

#include "coeus/base/flight_recorder.hpp"
#include "coeus/base/text.hpp"
#include "coeus/comm/launch_order.hpp"
#include "coeus/comm/mesh.hpp"
#include "coeus/comm/nccl_environment.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/device/cpu.hpp"
#include "coeus/device/device.hpp"
#include "coeus/setup/device_choice.hpp"
#include "gpu_placement.hpp"

#include <algorithm>
#include <unordered_map>
#include <vector>

namespace coeus {

namespace {

// "ranks 0 and 1 share GPU ...", for the first two that do; "" if none do.
std::string sharing_text(const std::vector<GpuOfRank>& gpus) {
    std::unordered_map<std::string, size_t> first;
    for (size_t rank = 0; rank < gpus.size(); ++rank)
        if (const auto [found, is_new] = first.emplace(gpus[rank].text(), rank); !is_new)
            return fmt::format("ranks {} and {} share {}", found->second, rank, gpus[rank].text());
    return "";
}

// NCCL, if every rank can load it; else none, with the reason in `why`.
std::optional<NcclLibrary> load_on_all(const Communicator& world, const std::string& path, std::string& why) {
    std::optional<NcclLibrary> nccl;
    try {
        together(world, [&] { nccl = load_nccl(path); });
    } catch (const ConfigError& error) {
        why = error.what();
        return std::nullopt;
    }
    return nccl;
}

// The first rank whose user asks for NVLS, and how; -1: none.
struct AskedNvls {
    int rank = -1;
    std::string text;
};
AskedNvls asked_nvls(const Communicator& world) {
    const std::string own = nvls_asked_by_user();
    const int64_t none = world.size(),
                  first = -world.all_reduce(own.empty() ? -none : -int64_t(world.rank()), Reduce::max);
    if (first == none) return {};
    return {int(first), broadcast_text(world, own, int(first))};
}

// Turns NVLS off if the deck wants the same sums in each run and no rank's user wants NVLS.
void settle_nvls(RankTransport& nccl, const Config& config, const Communicator& world) {
    const AskedNvls asked = asked_nvls(world);
    nccl.nvls = asked.rank >= 0 || !config.comm.deterministic;
    if (!nccl.nvls) turn_nvls_off();
    if (!config.comm.deterministic) {
        nccl.text += ", with NVLS if it suits: comm.deterministic = false";
    } else if (!nccl.nvls) {
        nccl.text += ", without NVLS: comm.deterministic";
    } else {
        nccl.text += ", with NVLS: " + asked.text;
        nccl.warnings.push_back(fmt::format(
            "{} is set on rank {}, so NCCL may sum in NVLink's switches (NVLS), and sums may differ from run "
            "to run. Unset the variable, or set comm.deterministic = false to allow this",
            asked.text, asked.rank));
    }
}

int least_of_all(const Communicator& world, int number) {
    return int(-world.all_reduce(-int64_t(number), Reduce::max));
}

// Ranks share a GPU, as `shared` says, and the deck asks for NCCL. ConfigError unless NCCL is new enough,
// every rank's user allows it, and nothing asks for NVLS. `why`: if there is no NCCL.
void require_sharing_allowed(const std::string& shared, const std::optional<NcclLibrary>& nccl,
                             const std::string& why, const Config& config, const Communicator& world) {
    constexpr const char* allow = "NCCL_MULTI_RANK_GPU_ENABLE=1 on every rank, for tests only";
    const auto refuse = [&](const std::string& reason) {
        throw ConfigError(
            "comm.transport = \"nccl\": {}; {}; start at most one rank per GPU, or set comm.transport = "
            "\"staged\"",
            shared, reason);
    };
    if (!nccl) refuse(fmt::format("NCCL 2.30 and newer allow that with {}, but {}", allow, why));
    const int version = least_of_all(world, nccl->version());
    const std::string name = "NCCL " + nccl_version_text(version);
    if (version < first_nccl_with_shared_gpus)
        refuse(fmt::format("{} refuses that, 2.30 and newer allow it with {}", name, allow));
    if (least_of_all(world, int(shared_gpus_allowed_by_user())) == 0)
        refuse(fmt::format("{} allows that only with {}", name, allow));
    if (!config.comm.deterministic)
        throw ConfigError(
            "comm.deterministic = false: it allows NVLS, but {}, and NCCL has no NVLS for ranks that share a "
            "GPU; set comm.deterministic = true",
            shared);
    if (const AskedNvls asked = asked_nvls(world); asked.rank >= 0)
        throw ConfigError(
            "{} is set on rank {}, but {}, and NCCL has no NVLS for ranks that share a GPU; unset the "
            "variable",
            asked.text, asked.rank, shared);
}

// Decides whether NCCL orders the operations of its communicators, by the oldest versions of all ranks.
void settle_launch_order(RankTransport& nccl, const Config& config, const Communicator& world,
                         const Device& device) {
    const auto least = [&](int number) { return least_of_all(world, number); };
    const std::optional<bool> own = launch_order_asked_by_user();
    const bool any_off = world.all_reduce(int64_t(own == false), Reduce::max) != 0,
               any_on = world.all_reduce(int64_t(own == true), Reduce::max) != 0;
    const MeshShape mesh = mesh_shape(config, world.size());
    const int limit = int(config.comm.max_ctas), asked = max_ctas_asked_by_user(),
              own_limit = asked > 0 ? asked : limit;
    if (limit > 0 && least(nccl.nccl->version()) < nccl::first_with_max_ctas)
        throw ConfigError(
            "comm.max_ctas = {}: NCCL has this limit from 2.17 on, but this is NCCL {}; set it to 0, or set "
            "the "
            "environment variable COEUS_NCCL to the path of a newer NCCL",
            limit, nccl_version_text(least(nccl.nccl->version())));
    const LaunchFacts facts = {
        .nccl = least(nccl.nccl->version()),
        .driver = least(cuda_versions().driver),
        .graphs = !config.training.disable_cuda_graphs,
        .communicators = most_carrying_communicators(mesh),
        .max_ctas = least(own_limit) == 0 ? 0 : world.all_reduce(int64_t(own_limit), Reduce::max),
        .multiprocessors = least(device.multiprocessors()),
        .asked_by_user = any_off || any_on ? std::optional(!any_off) : std::nullopt};
    const LaunchChoice choice = launch_choice(facts);
    set_launch_order(choice.implicit);
    nccl.ctas = {.state = limit, .others = choice.order == LaunchOrder::unordered ? limit : 0};
    if (choice.order == LaunchOrder::serial) nccl.text += ", one operation at a time";
    if (choice.order == LaunchOrder::unordered) nccl.text += ", operations in the GPU's order";
    if (!choice.warning.empty()) nccl.warnings.push_back(choice.warning);
}

}  // namespace

RankTransport transport_from_deck(const Config& config, const Communicator& world, const Device& device,
                                  const std::string& library) {
    const bool asks = config.comm.transport == "nccl";
    if (device.is_host()) {
        if (asks)
            throw ConfigError(
                "comm.transport = \"nccl\": NCCL connects GPUs, but this run computes on CPUs, which use "
                "MPI; remove the option, or set device = \"cuda\"");
        return {};
    }
    if (world.size() == 1) return {};
    const std::string by_host = "pinned host memory";
    if (config.comm.transport == "staged") return {.text = by_host};
    const std::string shared = sharing_text(gpus_of_ranks(world, device));
    if (!shared.empty() && !asks) {
        const bool allowed = least_of_all(world, int(shared_gpus_allowed_by_user())) != 0;
        return {.text = fmt::format("{}: {}{}", by_host, shared,
                                    allowed ? ". NCCL_MULTI_RANK_GPU_ENABLE is set, but NCCL connects such "
                                              "ranks only with comm.transport = \"nccl\""
                                            : "")};
    }
    std::string why;
    std::optional<NcclLibrary> nccl = load_on_all(world, library, why);
    if (!shared.empty()) require_sharing_allowed(shared, nccl, why, config, world);
    if (nccl) {
        RankTransport found = {.nccl = nccl, .text = "NCCL " + nccl->version_text()};
        if (!shared.empty())
            found.warnings.push_back(
                shared +
                ", and NCCL connects them (NCCL_MULTI_RANK_GPU_ENABLE): this is for tests, and slow. If "
                "operations do not end, the GPU lacks room for those of all ranks: set NCCL_MAX_CTAS = 2 or "
                "less");
        settle_nvls(found, config, world);
        settle_launch_order(found, config, world, device);
        return found;
    }
    if (asks)
        throw ConfigError(
            "comm.transport = \"nccl\": {}; set the environment variable COEUS_NCCL to the path of the "
            "library, or set comm.transport = \"staged\"",
            why);
    return {.text = by_host + ": " + why};
}

RankDevice::RankDevice(const Config& config, const Communicator& world, int local_rank, int local_size,
                       const std::filesystem::path& root)
    : sharing_(local_size) {  // ranks that share the host's CPUs
    const int gpus = wants_gpu_where_there_is_one(config) ? visible_gpus() : 0;
    const bool missing = world.all_reduce(int64_t(gpus == 0), Reduce::max) != 0,
               found = world.all_reduce(int64_t(gpus > 0), Reduce::max) != 0;
    together(world, [&] {
        if (gpus == 0 && config.device == "cuda") throw no_gpu("device = \"cuda\"");
        if (gpus == 0 && wants_gpu_where_there_is_one(config)) require_usable("device = \"auto\"", root);
        if (gpus == 0 && missing && found)
            throw ConfigError(
                "device = \"auto\": rank {} sees no GPU, but other ranks do; request GPUs on every node "
                "(--gpus-per-node), or set device = \"cpu\"",
                world.rank());
    });
    if (gpus == 0) {
        if (built_with_cuda() && wants_gpu_where_there_is_one(config)) text_ = why_no_gpu();
        transport_ = transport_from_deck(config, world, host_device());
        attention_ = attention_library(config, world, host_device());
        return;
    }
    const GpuPlacement placement = place_on_gpu(world, local_rank, local_size, gpus, root);
    // before this run uses the GPUs
    if (std::string warning = foreign_memory_warning(world, gpu_bus_id(placement.number)); !warning.empty())
        warnings_.push_back(std::move(warning));
    // a thread that waits awake would take a core from NCCL's and CUDA's threads
    const Waiting waiting = placement.cores < cores_for_gpu ? Waiting::asleep : Waiting::awake;
    together(world, [&] {
        const Recorded recorded(OperationKind::driver, "open_gpu", std::source_location::current());
        gpu_ =
            open_gpu(placement.number, {.waiting = waiting, .priorities = config.kernels.stream_priorities});
    });
    const std::vector<GpuOfRank> all = gpus_of_ranks(world, *gpu_);
    sharing_ = int(std::ranges::count(all, all[size_t(world.rank())]));
    text_ =
        fmt::format("{}, {} free (GPU {} of {}{}{})", gpu_->name(), bytes_text(double(gpu_->memory_bytes())),
                    placement.number, gpus, sharing_ > 1 ? fmt::format(", shared by {} ranks", sharing_) : "",
                    gpu_->compiles_kernels() ? ", kernels compiled at the start (PTX)" : "");
    if (waiting == Waiting::asleep)
        text_ += fmt::format(", waiting for it asleep ({:.3g} cores per rank)", placement.cores);
    transport_ = transport_from_deck(config, world, *gpu_);
    if (!placement.warning.empty()) warnings_.push_back(placement.warning);
    if (transport_.nccl)
        if (std::string warning = isolation_warning(world, all); !warning.empty())
            warnings_.push_back(std::move(warning));
    attention_ = attention_library(config, world, *gpu_);
}

}  // namespace coeus
