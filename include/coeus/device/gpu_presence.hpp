// SPDX-License-Identifier: Apache-2.0
// GPUs of this host as the system shows them, which need not be usable: drivers may be missing, too old or
// broken.
#pragma once

#include "coeus/device/device.hpp"

#include <filesystem>
#include <string>

namespace coeus {

/// An NVIDIA GPU of this host that cannot be used, and why: "GPU /dev/nvidia0 cannot be used: the driver
/// (550.54.14) knows ...". "" if CUDA works, also if it shows no GPU; if the system shows none; if
/// CUDA_VISIBLE_DEVICES hides all; or if the program was built without CUDA. Tests pass another folder as
/// `root`.
std::string unusable_gpu(const std::filesystem::path& root = "/");

/// "/dev/nvidia0", or the address on the PCI bus "0000:1b:00.0" of a GPU without a driver; "" if the system
/// shows no NVIDIA GPU.
std::string gpu_of_system(const std::filesystem::path& root = "/");

/// The version of NVIDIA's driver, "550.54.14", as its kernel module reports it; "" if it is not loaded.
std::string driver_version(const std::filesystem::path& root = "/");

/// "The driver (580.159.04) knows CUDA 13.0; this program was built with CUDA 12.4"; `driver` as
/// driver_version().
std::string cuda_versions_text(const CudaVersions& versions, const std::string& driver);

/// Why CUDA finds the driver insufficient: it is missing, or too old for the toolkit.
std::string insufficient_driver_text(const CudaVersions& versions, const std::string& driver);

}  // namespace coeus
