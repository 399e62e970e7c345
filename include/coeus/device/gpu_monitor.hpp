// SPDX-License-Identifier: Apache-2.0
// GpuMonitor: the state of one GPU as NVIDIA's driver reports it: memory, power, clocks, temperature and the
// reasons for throttling. It uses NVML, the driver's own library, which is loaded at run time: no toolkit is
// needed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace coeus {

/// One reading of a GPU. Values that this GPU or its driver does not report are absent.
struct GpuSample {
    std::optional<uint64_t> memory_used, memory_total;  ///< bytes, of all processes on the GPU
    std::optional<double> power, power_limit;           ///< watts
    std::optional<double> energy;                       ///< joules since the driver was loaded
    std::optional<int> sm_clock, memory_clock;          ///< MHz, current
    std::optional<int> temperature;                     ///< degrees Celsius
    std::optional<int> utilisation;                     ///< percent of the time during which a kernel ran
    std::optional<uint64_t> throttle_reasons;           ///< NVML's bits; see throttle_text()
};

/// The reasons why the clocks are below their maximum: "power cap", "thermal", "hardware slow-down, thermal
/// (hardware)", ... Empty if nothing limits them, and for an idle GPU.
std::string throttle_text(uint64_t throttle_reasons);

class GpuMonitor {
public:
    /// Opens the monitor of a GPU. Nothing if the library or the GPU is missing, or if the driver does not
    /// run. `bus_id` is in the form of cudaDeviceGetPCIBusId(): "0000:17:00.0".
    static std::optional<GpuMonitor> of_bus_id(const std::string& bus_id,
                                               const std::string& library = default_library);
    static constexpr const char* default_library = "libnvidia-ml.so.1";
    /// Those of the GPUs that the driver hides from this process: a control group or a container keeps it
    /// from opening them. (CUDA_VISIBLE_DEVICES hides nothing here.) Empty if the driver cannot be asked.
    static std::vector<std::string> hidden(const std::vector<std::string>& bus_ids,
                                           const std::string& library = default_library);

    GpuMonitor(GpuMonitor&&) noexcept;
    GpuMonitor& operator=(GpuMonitor&&) noexcept;
    ~GpuMonitor();

    const std::string& name() const { return name_; }      ///< "NVIDIA H100 80GB HBM3"
    const std::string& driver() const { return driver_; }  ///< "570.86.15"
    /// Reads the GPU's state. Takes well below a millisecond, and does not allocate.
    GpuSample sample() const;

private:
    struct Library;
    GpuMonitor(std::unique_ptr<Library> library, void* gpu);
    std::unique_ptr<Library> library_;
    void* gpu_;
    std::string name_, driver_;
};

}  // namespace coeus
