// SPDX-License-Identifier: Apache-2.0
#include "coeus/setup/rank_device.hpp"

#include "coeus/base/flight_recorder.hpp"
#include "coeus/base/text.hpp"
#include "coeus/comm/launch_order.hpp"
#include "coeus/comm/mesh.hpp"
#include "coeus/comm/nccl_environment.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/device/cpu.hpp"
#include "coeus/device/device.hpp"
#include "coeus/device/gpu_presence.hpp"
#include "gpu_placement.hpp"

#include <algorithm>
#include <unordered_map>
#include <vector>

namespace coeus {

namespace {

bool wants_gpu_where_there_is_one(const Config& config) {
    return config.device == "cuda" || (config.device == "auto" && config.training.dtype != "float64");
}

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

// Turns NVLS off if the deck wants the same sums in each run and no rank's user wants NVLS.
void settle_nvls(RankTransport& nccl, const Config& config, const Communicator& world) {
    const std::string own = nvls_asked_by_user();
    const int64_t none = world.size(),
                  first = -world.all_reduce(own.empty() ? -none : -int64_t(world.rank()), Reduce::max);
    nccl.nvls = first < none || !config.comm.deterministic;
    if (!nccl.nvls) turn_nvls_off();
    if (!config.comm.deterministic) {
        nccl.text += ", with NVLS if it suits: comm.deterministic = false";
    } else if (!nccl.nvls) {
        nccl.text += ", without NVLS: comm.deterministic";
    } else {
        const std::string asked = broadcast_text(world, own, int(first));
        nccl.text += ", with NVLS: " + asked;
        nccl.warnings.push_back(fmt::format(
            "{} is set on rank {}, so NCCL may sum in NVLink's switches (NVLS), and sums may differ from run "
            "to run. Unset the variable, or set comm.deterministic = false to allow this",
            asked, first));
    }
}

// Decides whether NCCL orders the operations of its communicators, by the oldest versions of all ranks.
void settle_launch_order(RankTransport& nccl, const Config& config, const Communicator& world,
                         const Device& device) {
    const auto least = [&](int number) { return int(-world.all_reduce(-int64_t(number), Reduce::max)); };
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

ConfigError no_gpu(const std::string& asked) {
    return ConfigError("{}: {}; \"cpu\" would compute on CPUs", asked, why_no_gpu());
}

// ConfigError if this host has a GPU that cannot be used: "auto" would then compute on CPUs unnoticed.
void require_usable(const std::string& asked, const std::filesystem::path& root) {
    if (const std::string unusable = unusable_gpu(root); !unusable.empty())
        throw ConfigError("{}: {}. \"cpu\" would compute on CPUs", asked, unusable);
}

}  // namespace

Backend backend_from_deck(const Config& config, const std::filesystem::path& root) {
    if (config.device == "cuda") return Backend::cuda;
    if (wants_gpu_where_there_is_one(config)) require_usable("device = \"auto\"", root);
    return wants_gpu_where_there_is_one(config) && visible_gpus() > 0 ? Backend::cuda : Backend::cpu;
}

std::unique_ptr<Device> gpu_of_command(const std::string& device, const std::filesystem::path& root) {
    if (device == "cpu") return nullptr;
    if (visible_gpus() > 0) return open_gpu(0);
    if (device == "cuda") throw no_gpu("--device=cuda");
    require_usable("--device=auto", root);
    return nullptr;
}

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
    if (!shared.empty()) {
        if (asks)
            throw ConfigError(
                "comm.transport = \"nccl\": {}; start at most one rank per GPU, or set comm.transport = "
                "\"staged\"",
                shared);
        return {.text = by_host + ": " + shared};
    }
    std::string why;
    std::optional<NcclLibrary> nccl = load_on_all(world, library, why);
    if (nccl) {
        RankTransport found = {.nccl = nccl, .text = "NCCL " + nccl->version_text()};
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
