// SPDX-License-Identifier: Apache-2.0
#include "coeus/setup/device_choice.hpp"

#include "coeus/device/gpu_presence.hpp"

namespace coeus {

bool wants_gpu_where_there_is_one(const Config& config) {
    return config.device == "cuda" || (config.device == "auto" && config.training.dtype != "float64");
}

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

ConfigError no_gpu(const std::string& asked) {
    return ConfigError("{}: {}; \"cpu\" would compute on CPUs", asked, why_no_gpu());
}

void require_usable(const std::string& asked, const std::filesystem::path& root) {
    if (const std::string unusable = unusable_gpu(root); !unusable.empty())
        throw ConfigError("{}: {}. \"cpu\" would compute on CPUs", asked, unusable);
}

}  // namespace coeus
