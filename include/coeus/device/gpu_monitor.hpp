// SPDX-License-Identifier: Apache-2.0
// What NVIDIA's driver says of one GPU: memory, power, clocks, temperature, why it runs slower than it could.
// Asked of NVML, the driver's own library, which is looked for when the program runs: no toolkit is needed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace coeus {

/// One look at a GPU; a figure that this GPU or its driver does not give is absent.
struct GpuSample {
    std::optional<uint64_t> memory_used, memory_total;  ///< bytes, of all its processes
    std::optional<double> power, power_limit;           ///< watts
    std::optional<int> sm_clock, memory_clock;          ///< MHz, now
    std::optional<int> temperature;                     ///< degrees Celsius
    std::optional<int> utilisation;                     ///< percent of the time in which a kernel ran
    std::optional<uint64_t> throttle_reasons;           ///< bits of NVML; see throttle_text()
};

/// Why the clocks are below the highest: "power cap", "thermal", "hardware slow-down, thermal (hardware)"
/// ...;
/// "" where nothing holds them down, a GPU that idles included.
std::string throttle_text(uint64_t throttle_reasons);

class GpuMonitor {
public:
    /// The monitor of a GPU; none if the library or the GPU is absent, or the driver does not run. `bus_id`
    /// as cudaDeviceGetPCIBusId() says it: "0000:17:00.0".
    static std::optional<GpuMonitor> of_bus_id(const std::string& bus_id,
                                               const std::string& library = default_library);
    static constexpr const char* default_library = "libnvidia-ml.so.1";

    GpuMonitor(GpuMonitor&&) noexcept;
    GpuMonitor& operator=(GpuMonitor&&) noexcept;
    ~GpuMonitor();

    const std::string& name() const { return name_; }      ///< "NVIDIA H100 80GB HBM3"
    const std::string& driver() const { return driver_; }  ///< "570.86.15"
    /// Takes well below a millisecond, and no memory.
    GpuSample sample() const;

private:
    struct Library;
    GpuMonitor(std::unique_ptr<Library> library, void* gpu);
    std::unique_ptr<Library> library_;
    void* gpu_;
    std::string name_, driver_;
};

}  // namespace coeus
