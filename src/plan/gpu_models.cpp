// SPDX-License-Identifier: Apache-2.0
#include "coeus/plan/gpu_models.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"

#include <algorithm>

namespace coeus {

namespace {

constexpr int64_t mib = int64_t(1) << 20;

// True for "NVIDIA <model>" followed by nothing but the board or the memory size ("-SXM4-80GB", " 80GB
// HBM3"). An "A10G", an "RTX 4090 D", a " Laptop GPU" and MIG parts (" MIG 1g.5gb") are other models.
bool is_of_model(const std::string& name, const std::string& model) {
    const std::string start = "NVIDIA " + model;
    if (!name.starts_with(start) || name.find(" MIG ") != std::string::npos) return false;
    const std::string rest = name.substr(start.size());
    return rest.empty() || rest[0] == '-' ||
           (rest[0] == ' ' && rest.size() > 1 && rest[1] >= '0' && rest[1] <= '9');
}

}  // namespace

const std::vector<GpuModel>& gpu_models() {
    // memory: the total that nvidia-smi reports; f32 0: unknown
    static const std::vector<GpuModel> models = {
        {"a10", "A10", 86, 23028 * mib, 125e12, 31.2e12},
        {"a40", "A40", 86, 46068 * mib, 149.7e12, 37.4e12},
        {"a100", "A100", 80, 81920 * mib, 312e12, 19.5e12},
        {"a100-40gb", "A100", 80, 40960 * mib, 312e12, 19.5e12},
        {"a800", "A800", 80, 81920 * mib, 312e12, 19.5e12},
        {"rtx-a6000", "RTX A6000", 86, 49140 * mib, 154.85e12, 38.7e12},
        {"h100", "H100", 90, 81559 * mib, 989.4e12, 66.9e12},
        {"h100-pcie", "H100 PCIe", 90, 81559 * mib, 756e12, 51.2e12},
        {"h100-nvl", "H100 NVL", 90, 95830 * mib, 835e12, 60e12},
        {"h800", "H800", 90, 81559 * mib, 989.4e12, 66.9e12},
        {"h800-pcie", "H800 PCIe", 90, 81559 * mib, 756e12, 51.2e12},
        {"h200", "H200", 90, 143771 * mib, 989.4e12, 66.9e12},
        {"h200-nvl", "H200 NVL", 90, 143771 * mib, 835e12, 60e12},
        {"gh200", "GH200", 90, 97871 * mib, 989.4e12, 66.9e12},
        {"h20", "H20", 90, 97871 * mib, 148e12, 0},
        {"b200", "B200", 100, 183359 * mib, 2.25e15, 0},
        {"gb200", "GB200", 100, 189471 * mib, 2.5e15, 0},
        {"b300", "B300", 103, 275040 * mib, 2.25e15, 0},
        {"gb300", "GB300", 103, 284208 * mib, 2.5e15, 0},
        {"l4", "L4", 89, 23034 * mib, 121e12, 30.3e12},
        {"l40", "L40", 89, 46068 * mib, 181e12, 90.5e12},
        {"l40s", "L40S", 89, 46068 * mib, 362e12, 91.6e12},
        {"rtx-4090", "GeForce RTX 4090", 89, 24564 * mib, 165.2e12, 82.6e12},
    };
    return models;
}

const GpuModel& gpu_model(const std::string& name) {
    std::vector<std::string> names;
    for (const GpuModel& gpu : gpu_models()) {
        if (gpu.name == name) return gpu;
        names.push_back(gpu.name);
    }
    const std::string near = nearest_name(name, names);
    throw ConfigError(
        "--gpu={}: unknown GPU{} Known are {}. --memory SIZE, such as --memory 80GiB, plans for "
        "any other",
        name, near.empty() ? "." : "; did you mean " + near + "?", join(names, ", "));
}

std::optional<double> gpu_peak_flops(const std::string& device_name, Dtype dtype) {
    if (dtype != Dtype::bf16 && dtype != Dtype::f32) return std::nullopt;
    for (const GpuModel& gpu : gpu_models()) {
        const double peak = dtype == Dtype::bf16 ? gpu.bf16 : gpu.f32;
        if (peak > 0 && is_of_model(device_name, gpu.title)) return peak;
    }
    return std::nullopt;
}

}  // namespace coeus
