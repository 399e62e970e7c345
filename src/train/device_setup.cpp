// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/device_setup.hpp"

#include "coeus/base/text.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/device/device.hpp"

namespace coeus {

namespace {

bool wants_gpu_where_there_is_one(const Config& config) {
    return config.device == "cuda" || (config.device == "auto" && config.training.dtype != "float64");
}

}  // namespace

Backend backend_from_deck(const Config& config) {
    if (config.device == "cuda") return Backend::cuda;
    return wants_gpu_where_there_is_one(config) && visible_gpus() > 0 ? Backend::cuda : Backend::cpu;
}

RankDevice::RankDevice(const Config& config, const Communicator& world, int local_rank, int local_size)
    : sharing_(local_size) {
    const int gpus = wants_gpu_where_there_is_one(config) ? visible_gpus() : 0;
    const bool missing = world.all_reduce(int64_t(gpus == 0), Reduce::max) != 0,
               found = world.all_reduce(int64_t(gpus > 0), Reduce::max) != 0;
    together(world, [&] {
        if (gpus == 0 && config.device == "cuda")
            throw ConfigError("device = \"cuda\": {}; give device = \"auto\" or \"cpu\" to compute on CPUs",
                              why_no_gpu());
        if (gpus == 0 && missing && found)
            throw ConfigError(
                "device = \"auto\": rank {} sees no GPU, others do; give each host its GPUs "
                "(--gpus-per-node), or set device = \"cpu\"",
                world.rank());
    });
    if (gpus == 0) {
        if (built_with_cuda() && wants_gpu_where_there_is_one(config)) text_ = why_no_gpu();
        return;
    }
    const int number = local_rank % gpus;
    together(world, [&] { gpu_ = open_gpu(number); });
    sharing_ = local_size / gpus + (number < local_size % gpus ? 1 : 0);
    text_ =
        fmt::format("{}, {} free (GPU {} of {}{})", gpu_->name(), bytes_text(double(gpu_->memory_bytes())),
                    number, gpus, sharing_ > 1 ? fmt::format(", shared by {} ranks", sharing_) : "");
}

}  // namespace coeus
