// SPDX-License-Identifier: Apache-2.0
// The device of each rank: GPUs that cannot be used, GPUs near the cores of ranks, GPUs that ranks hide from
// each other, how threads wait for a GPU, and what is in use of its memory.
#include "coeus/session/rank_device.hpp"

#include "../../../src/session/gpu_placement.hpp"
#include "coeus/base/error.hpp"
#include "coeus/comm/mpi.hpp"
#include "coeus/device/cpu.hpp"
#include "coeus/device/exec.hpp"
#include "coeus/session/gpu_memory_use.hpp"
#include "coeus/setup/device_choice.hpp"
#include "stand_ins/cuda/runtime.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"
#include "support/skip.hpp"
#include "support/support.hpp"

#include <cstdlib>
#include <cuda_runtime.h>
#include <fstream>
#include <functional>
#include <vector>

using namespace coeus;
using Catch::Contains;

namespace {

std::string refusal_of(const std::function<void()>& work) {
    try {
        work();
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "no error";
}

}  // namespace

TEST_CASE("device: a GPU that cannot be used is an error for \"auto\"") {
    const Communicator world = Communicator::world("world");
    const test::TemporaryFolder folder;
    const std::filesystem::path root = folder / "root";
    std::filesystem::create_directories(root / "dev");
    unsetenv("CUDA_VISIBLE_DEVICES");
    Config config;
    const auto chosen = [&] { return RankDevice(config, world, world.rank(), world.size(), root); };
    emulation::driver_version = 12040;
    emulation::set_failure(cudaErrorInsufficientDriver);
    CHECK(chosen().device().is_host());  // no rank has a GPU
    CHECK_THAT(chosen().text(), Contains("the driver knows CUDA 12.4"));
    CHECK(backend_from_deck(config, root) == Backend::cpu);
    CHECK(gpu_of_command("auto", root) == nullptr);

    if (world.rank() == 1) std::ofstream(root / "dev/nvidia0") << "";
    const std::string why = "GPU /dev/nvidia0 cannot be used: the driver knows CUDA 12.4, but this program";
    CHECK_THAT(refusal_of(chosen),
               Contains("rank 1: device = \"auto\": " + why) && Contains("\"cpu\" would compute on CPUs"));
    std::ofstream(root / "dev/nvidia0") << "";
    CHECK_THAT(refusal_of([&] { backend_from_deck(config, root); }), Contains("device = \"auto\": " + why));
    CHECK_THAT(refusal_of([&] { gpu_of_command("auto", root); }), Contains("--device=auto: " + why));
    // no GPU is wanted
    CHECK(gpu_of_command("cpu", root) == nullptr);
    config.device = "cpu";
    CHECK(chosen().device().is_host());
    CHECK(backend_from_deck(config, root) == Backend::cpu);
    config.device = "auto";
    config.training.dtype = "float64";
    CHECK(chosen().device().is_host());
    config.training.dtype = "float32";
    config.device = "cuda";
    CHECK_THAT(refusal_of(chosen), Contains("device = \"cuda\": the driver knows CUDA 12.4"));
    config.device = "auto";
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    CHECK(chosen().device().is_host());
    unsetenv("CUDA_VISIBLE_DEVICES");
    emulation::set_gpus(1);
    emulation::driver_version = 13000;
}

TEST_CASE("device: threads wait for the GPU asleep if cores are few") {
    const Communicator world = Communicator::world("world");
    const Config config;
    const auto text_on = [&](const char* machine) {
        setenv("HWLOC_SYNTHETIC", machine, 1);
        const RankDevice chosen(config, world, world.rank(), world.size());
        unsetenv("HWLOC_SYNTHETIC");
        return chosen.text();
    };
    emulation::device_flags = 0;
    CHECK_THAT(text_on("core:64 pu:1"), !Contains("asleep"));
    CHECK(emulation::device_flags == 0);
    const std::string cores = world.size() == 2 ? "3" : "1.5";
    CHECK_THAT(text_on("core:6 pu:1"), Contains(", waiting for it asleep (" + cores + " cores per rank)"));
    CHECK(emulation::device_flags == cudaDeviceScheduleBlockingSync);
}

TEST_CASE("device: queues of communication have a high priority unless the deck says otherwise") {
    const Communicator world = Communicator::world("world");
    Config config;
    const auto priority = [&] {
        const RankDevice chosen(config, world, world.rank(), world.size());
        const Exec gathers(chosen.device(), Priority::high);
        return emulation::priority(static_cast<cudaStream_t>(gathers.queue->native()));
    };
    CHECK(priority() == -5);
    config.kernels.stream_priorities = false;
    CHECK(priority() == 0);
}

TEST_CASE("device: a rank gets the GPU near the core to which it is bound") {
    const Communicator world = Communicator::world("world");
    if (world.size() != 2) return test::skip("the case is for 2 ranks");
    const CpuShare machine = share_of_cpu(1, 0, 1);
    if (world.all_reduce(int64_t(machine.bound || machine.cores < 2), Reduce::max) != 0)
        return test::skip("there is no second core");
    const auto bind_to = [](int first, int cores) {
        apply({.threads = 1, .first_core = first, .own_cores = cores, .reason = ""});
        return cpu_binding();
    };
    const std::vector<std::string> processors = {bind_to(0, 1), bind_to(1, 1)};
    const test::TemporaryFolder folder;
    const std::filesystem::path root = folder / "root", devices = root / "sys/bus/pci/devices";
    for (size_t gpu = 0; gpu < 2; ++gpu) {
        const std::filesystem::path device = devices / fmt::format("0000:0{}:00.0", 1 + gpu);
        std::filesystem::create_directories(device);
        std::ofstream(device / "local_cpulist") << processors[gpu];
    }
    emulation::set_gpus(2);
    const Config config;
    const auto chosen = [&] { return RankDevice(config, world, world.rank(), world.size(), root); };
    const int rank = world.rank();
    bind_to(rank, 1);
    const RankDevice own = chosen();
    bind_to(1 - rank, 1);
    const RankDevice swapped = chosen();
    bind_to(1, 1);
    const RankDevice far = chosen();
    bind_to(0, machine.cores);
    emulation::set_gpus(1);
    CHECK(own.device().bus_id() == fmt::format("0000:0{}:00.0", 1 + rank));
    CHECK_THAT(own.text(), Contains(fmt::format("(GPU {} of 2)", rank)));
    CHECK(own.sharing() == 1);
    CHECK(own.warnings().empty());
    CHECK(swapped.device().bus_id() == fmt::format("0000:0{}:00.0", 2 - rank));
    CHECK_THAT(swapped.text(), Contains(fmt::format("(GPU {} of 2)", 1 - rank)));
    CHECK(swapped.warnings().empty());
    // one of the two is near
    CHECK(far.device().bus_id() == fmt::format("0000:0{}:00.0", 1 + rank));
    REQUIRE(far.warnings().size() == 1);
    CHECK(far.warnings()[0] ==
          fmt::format("rank 0 is bound to the processors {}, but its GPU 0000:01:00.0 is near the processors "
                      "{}. Copies to such a GPU pass through other processors; this concerns 1 of 2 ranks. "
                      "Start with srun --distribution=block:block, or with mpirun --bind-to none",
                      processors[1], processors[0]));
}

TEST_CASE("device: a warning tells that ranks cannot open each other's GPUs") {
    const Communicator world = Communicator::world("world");
    const std::string open = "0000:17:00.0", isolated = "0000:18:00.0";
    // a rank for each GPU; a rank can open only one
    const auto warning = [&](const std::string& other) {
        std::vector<GpuOfRank> gpus(size_t(world.size()), {"a", open});
        gpus[1].bus_id = other;
        return isolation_warning(world, gpus, test::paths::nvml());
    };
    const std::string text = warning(isolated);
    CHECK_THAT(text,
               Contains(fmt::format("rank 0 cannot open GPU {}, on which another rank of host a computes "
                                    "({} of {} ranks have such a GPU): NCCL cannot use NVLink",
                                    isolated, world.size() - 1, world.size())) &&
                   Contains("--gpu-bind=none"));
    CHECK(warning(open).empty());
    // other hosts' GPUs do not matter, nor does a driver that cannot be asked
    std::vector<GpuOfRank> gpus(size_t(world.size()), {"a", open});
    gpus[1] = {"b", isolated};
    CHECK(isolation_warning(world, gpus, test::paths::nvml()).empty());
    CHECK(isolation_warning(world, gpus, "/absent/libnvidia-ml.so.1").empty());
}

TEST_CASE("device: a warning tells that other processes hold memory of a rank's GPU") {
    const Communicator world = Communicator::world("world");
    // the stand-in has one GPU, of whose 80 GiB 30 are in use
    const std::string own = world.rank() == 1 ? "0000:17:00.0" : "0000:18:00.0";
    CHECK_THAT(
        foreign_memory_warning(world, own, test::paths::nvml()),
        Contains("rank 1 starts on GPU 0000:17:00.0 of host ") &&
            Contains(fmt::format(", of whose 80.0 GiB other processes hold 30.0 GiB (1 of {} ranks have "
                                 "such a GPU). `nvidia-smi` lists them: end them, or choose another GPU "
                                 "(CUDA_VISIBLE_DEVICES)",
                                 world.size())));
    CHECK(foreign_memory_warning(world, "0000:18:00.0", test::paths::nvml()).empty());
    CHECK(foreign_memory_warning(world, own, "/absent/libnvidia-ml.so.1").empty());
}

TEST_CASE("device: a GPU that another process has for itself, or whose memory is in use, is not opened") {
    for (const cudaError_t why : {cudaErrorMemoryAllocation, cudaErrorSystemNotReady}) {
        emulation::set_failure(why);
        CHECK_THROWS_WITH(
            open_gpu(0, {}),
            Contains("GPU 0000:01:00.0 cannot be opened: ") && Contains(cudaGetErrorString(why)) &&
                Contains(". If another process has it for itself (its compute mode) or holds its "
                         "memory, `nvidia-smi` names it: end it, or choose another GPU "
                         "(CUDA_VISIBLE_DEVICES)"));
        emulation::set_gpus(1);
    }
}

TEST_CASE("device: memory in use against the plan, of the rank that uses most compared with it") {
    const Communicator world = Communicator::world("world");
    constexpr int64_t gib = int64_t(1) << 30;
    // rank 1 is beyond its plan
    const GpuMemoryUse use = gpu_memory_use(world, 50 * gib, (world.rank() == 1 ? 51 : 40) * gib, true);
    CHECK(use.rank == 1);
    CHECK(use.planned == 50 * gib);
    CHECK(use.taken == 51 * gib);
    CHECK(!use.exceeds_plan());
    CHECK(use.text("after the first step") ==
          "GPU memory after the first step: 51.0 GiB in use, 50.0 GiB planned (rank 1, which uses most "
          "compared with its plan)");
    // all are below their plans
    const GpuMemoryUse below = gpu_memory_use(world, 50 * gib, (world.rank() == 1 ? 45 : 40) * gib, true);
    CHECK(below.rank == 1);
    CHECK(below.taken == 45 * gib);
    // ranks that share a GPU do not know
    const GpuMemoryUse shared = gpu_memory_use(world, 50 * gib, 60 * gib, world.rank() == 0);
    CHECK(shared.rank == 0);
    CHECK(shared.exceeds_plan());
    CHECK_THAT(shared.text("after the first step"), Contains("That is 20 % more than planned"));
    CHECK(gpu_memory_use(world, 50 * gib, 60 * gib, false).rank == -1);
}
