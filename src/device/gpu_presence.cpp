// SPDX-License-Identifier: Apache-2.0
#include "coeus/device/gpu_presence.hpp"

#include "coeus/base/text.hpp"

#include <cstdlib>
#include <fstream>
#include <regex>

namespace coeus {

namespace {

namespace fs = std::filesystem;

// The oldest drivers for all releases of a major version of CUDA (NVIDIA's table of minor version
// compatibility, docs.nvidia.com/deploy/cuda-compatibility).
int oldest_driver(int toolkit) {
    switch (toolkit / 1000) {
        case 12: return 525;
        case 13: return 580;
        default: return 0;  // not known
    }
}

std::string version_text(int cuda) {
    return fmt::format("{}.{}", cuda / 1000, cuda / 10 % 100);
}

std::string in_brackets(const std::string& driver) {
    return driver.empty() ? "" : " (" + driver + ")";
}

// Slurm writes "NoDevFiles" for jobs without GPUs.
bool variable_hides_gpus() {
    const char* const value = std::getenv("CUDA_VISIBLE_DEVICES");
    const std::string visible = value ? value : "0";
    return visible.empty() || visible == "-1" || visible == "NoDevFiles";
}

std::string first_line(const fs::path& file) {
    std::string line;
    std::getline(std::ifstream(file), line);
    return line;
}

}  // namespace

std::string driver_version(const fs::path& root) {
    std::smatch found;  // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 ..."
    const std::string line = first_line(root / "proc/driver/nvidia/version");
    return std::regex_search(line, found, std::regex(" ([0-9]+(\\.[0-9]+)+) ")) ? found[1].str() : "";
}

std::string gpu_of_system(const fs::path& root) {
    std::error_code unseen;
    for (const fs::directory_entry& file : fs::directory_iterator(root / "dev", unseen))
        if (std::regex_match(file.path().filename().string(), std::regex("nvidia[0-9]+")))
            return "/dev/" + file.path().filename().string();
    for (const fs::directory_entry& device : fs::directory_iterator(root / "sys/bus/pci/devices", unseen))
        // a display controller of NVIDIA
        if (first_line(device.path() / "vendor") == "0x10de" &&
            first_line(device.path() / "class").starts_with("0x03"))
            return device.path().filename().string();
    return "";
}

std::string unusable_gpu(const fs::path& root) {
    if (!cuda_fails() || variable_hides_gpus()) return "";
    const std::string gpu = gpu_of_system(root);
    if (gpu.empty()) return "";
    return fmt::format("GPU {} cannot be used: {}{}", gpu, why_no_gpu(),
                       cuda_versions().driver > 0
                           ? ""
                           : "; a container gets it from its host with docker --gpus or apptainer --nv");
}

std::string cuda_versions_text(const CudaVersions& versions, const std::string& driver) {
    return fmt::format("The driver{} knows CUDA {}; this program was built with CUDA {}", in_brackets(driver),
                       version_text(versions.driver), version_text(versions.toolkit));
}

std::string insufficient_driver_text(const CudaVersions& versions, const std::string& driver) {
    if (versions.driver == 0) return "NVIDIA's driver (libcuda.so.1) is not found";
    const int oldest = oldest_driver(versions.toolkit);
    return fmt::format(
        "the driver{} knows CUDA {}, but this program was built with CUDA {}{}; update the driver, or use a "
        "program that was built with CUDA {}",
        in_brackets(driver), version_text(versions.driver), version_text(versions.toolkit),
        oldest > 0 ? fmt::format(", which needs driver {} or newer", oldest) : "", versions.driver / 1000);
}

}  // namespace coeus
