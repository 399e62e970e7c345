// SPDX-License-Identifier: Apache-2.0
// What the system shows of NVIDIA's GPUs and their driver. tests/unit/cuda has the GPUs that cannot be used.
#include "coeus/device/gpu_presence.hpp"

#include "support/catch.hpp"
#include "support/support.hpp"

#include <fstream>

using namespace coeus;

namespace {

void write(const std::filesystem::path& file, const std::string& text) {
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
}

}  // namespace

TEST_CASE("GPUs of the system are found by their device file, or without a driver on the PCI bus") {
    const test::TemporaryFolder folder;
    const std::filesystem::path root = folder / "root", devices = root / "sys/bus/pci/devices";
    CHECK(gpu_of_system(root).empty());
    const auto add = [&](const char* address, const char* vendor, const char* kind) {
        write(devices / address / "vendor", vendor);
        write(devices / address / "class", kind);
    };
    add("0000:00:02.0", "0x8086\n", "0x030000\n");  // another vendor's display
    add("0000:1b:00.1", "0x10de\n", "0x040300\n");  // the audio device of a GPU
    CHECK(gpu_of_system(root).empty());
    add("0000:1b:00.0", "0x10de\n", "0x030200\n");
    CHECK(gpu_of_system(root) == "0000:1b:00.0");
    write(root / "dev/nvidiactl", "");
    write(root / "dev/nvidia-uvm", "");
    CHECK(gpu_of_system(root) == "0000:1b:00.0");
    write(root / "dev/nvidia3", "");
    CHECK(gpu_of_system(root) == "/dev/nvidia3");
}

TEST_CASE("the driver's version is that of its kernel module") {
    const test::TemporaryFolder folder;
    const std::filesystem::path root = folder / "root", file = root / "proc/driver/nvidia/version";
    CHECK(driver_version(root).empty());
    write(file,
          "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 01:44:30 UTC 2024\n"
          "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n");
    CHECK(driver_version(root) == "550.54.14");
    write(file,
          "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n"
          "GCC version:  gcc version 12.2.0\n");
    CHECK(driver_version(root) == "580.159.04");
    write(file, "something else\n");
    CHECK(driver_version(root).empty());
}

TEST_CASE("the versions of driver and toolkit, and why a driver is insufficient") {
    CHECK(cuda_versions_text({.driver = 13000, .toolkit = 12040}, "580.159.04") ==
          "The driver (580.159.04) knows CUDA 13.0; this program was built with CUDA 12.4");
    CHECK(cuda_versions_text({.driver = 12090, .toolkit = 12090}, "") ==
          "The driver knows CUDA 12.9; this program was built with CUDA 12.9");
    CHECK(insufficient_driver_text({.driver = 12040, .toolkit = 13000}, "550.54.14") ==
          "the driver (550.54.14) knows CUDA 12.4, but this program was built with CUDA 13.0, which needs "
          "driver 580 or newer; update the driver, or use a program that was built with CUDA 12");
    CHECK(insufficient_driver_text({.driver = 11080, .toolkit = 12040}, "") ==
          "the driver knows CUDA 11.8, but this program was built with CUDA 12.4, which needs driver 525 or "
          "newer; update the driver, or use a program that was built with CUDA 11");
    CHECK(insufficient_driver_text({.driver = 13000, .toolkit = 14000}, "") ==
          "the driver knows CUDA 13.0, but this program was built with CUDA 14.0; update the driver, or use "
          "a program that was built with CUDA 13");
    CHECK(insufficient_driver_text({.driver = 0, .toolkit = 13000}, "") ==
          "NVIDIA's driver (libcuda.so.1) is not found");
}

TEST_CASE("a program without CUDA does not look for GPUs") {
    const test::TemporaryFolder folder;
    write(folder / "root/dev/nvidia0", "");
    CHECK(!cuda_fails());
    CHECK(unusable_gpu(folder / "root").empty());
    CHECK(cuda_versions().driver == 0);
    CHECK(cuda_versions().toolkit == 0);
}
