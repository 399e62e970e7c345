// SPDX-License-Identifier: Apache-2.0
// The device of each rank: GPUs that cannot be used.
#include "coeus/train/rank_device.hpp"

#include "coeus/base/error.hpp"
#include "coeus/comm/mpi.hpp"
#include "stand_ins/cuda/runtime.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <cstdlib>
#include <cuda_runtime.h>
#include <fstream>
#include <functional>

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
