// SPDX-License-Identifier: Apache-2.0
#include "coeus/device/gpu_monitor.hpp"

#include <dlfcn.h>
#include <utility>

namespace coeus {

namespace {

// Values from nvml.h, which are the same in all versions of the driver.
constexpr int success = 0, no_permission = 4, not_found = 6;
constexpr int sm_clock = 1, memory_clock = 2;  // kinds of clocks
constexpr int on_die = 0;                      // kind of temperature
constexpr unsigned text_length = 96;

struct Reason {
    uint64_t bit;
    const char* name;
};
// 0x1 means an idle GPU, which is not a reason for throttling
constexpr Reason reasons[] = {
    {0x2, "application clocks"}, {0x4, "power cap"},        {0x8, "hardware slow-down"},
    {0x10, "sync boost"},        {0x20, "thermal"},         {0x40, "thermal (hardware)"},
    {0x80, "power brake"},       {0x100, "display clocks"},
};

}  // namespace

struct GpuMonitor::Library {
    // Types from nvml.h. They are not in the anonymous namespace: GCC 14 crashes at the function pointers
    // below if this file is compiled in a batch with others.
    struct Memory {
        unsigned long long total, free, used;
    };
    struct Utilisation {
        unsigned gpu, memory;  // percent
    };

    int (*init)();
    int (*shutdown)();
    int (*by_bus_id)(const char*, void**);
    int (*driver_version)(char*, unsigned);
    int (*name)(void*, char*, unsigned);
    int (*memory_info)(void*, Memory*);
    int (*power_usage)(void*, unsigned*);
    int (*power_limit)(void*, unsigned*);
    int (*energy)(void*, unsigned long long*);  // null: the driver is too old
    int (*clock)(void*, int, unsigned*);
    int (*temperature)(void*, int, unsigned*);
    int (*utilisation)(void*, Utilisation*);
    int (*throttle_reasons)(void*, unsigned long long*);

    explicit Library(const std::string& file) : handle_(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) {
        if (handle_ == nullptr) return;
        find(init, "nvmlInit_v2");
        find(shutdown, "nvmlShutdown");
        find(by_bus_id, "nvmlDeviceGetHandleByPciBusId_v2");
        find(driver_version, "nvmlSystemGetDriverVersion");
        find(name, "nvmlDeviceGetName");
        find(memory_info, "nvmlDeviceGetMemoryInfo");
        find(power_usage, "nvmlDeviceGetPowerUsage");
        find(power_limit, "nvmlDeviceGetEnforcedPowerLimit");
        find(clock, "nvmlDeviceGetClockInfo");
        find(temperature, "nvmlDeviceGetTemperature");
        find(utilisation, "nvmlDeviceGetUtilizationRates");
        find(throttle_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
        running_ = whole_ && init() == success;
        find(energy, "nvmlDeviceGetTotalEnergyConsumption");
    }
    ~Library() {
        if (running_) shutdown();
        if (handle_ != nullptr) dlclose(handle_);
    }
    Library(const Library&) = delete;
    Library& operator=(const Library&) = delete;

    bool running() const { return running_; }

private:
    template <class Function>
    void find(Function& function, const char* symbol) {
        function = reinterpret_cast<Function>(dlsym(handle_, symbol));
        whole_ = whole_ && function != nullptr;
    }
    void* handle_;
    bool whole_ = true, running_ = false;
};

std::optional<GpuMonitor> GpuMonitor::of_bus_id(const std::string& bus_id, const std::string& library) {
    auto nvml = std::make_unique<Library>(library);
    void* gpu = nullptr;
    if (!nvml->running() || nvml->by_bus_id(bus_id.c_str(), &gpu) != success) return std::nullopt;
    return GpuMonitor(std::move(nvml), gpu);
}

std::vector<std::string> GpuMonitor::hidden(const std::vector<std::string>& bus_ids,
                                            const std::string& library) {
    const Library nvml(library);
    std::vector<std::string> found;
    if (nvml.running())
        for (const std::string& id : bus_ids) {
            void* gpu = nullptr;
            const int status = nvml.by_bus_id(id.c_str(), &gpu);
            if (status == no_permission || status == not_found) found.push_back(id);
        }
    return found;
}

GpuMonitor::GpuMonitor(std::unique_ptr<Library> library, void* gpu)
    : library_(std::move(library)), gpu_(gpu) {
    char text[text_length] = "";
    if (library_->name(gpu_, text, text_length) == success) name_ = text;
    if (library_->driver_version(text, text_length) == success) driver_ = text;
}
GpuMonitor::GpuMonitor(GpuMonitor&&) noexcept = default;
GpuMonitor& GpuMonitor::operator=(GpuMonitor&&) noexcept = default;
GpuMonitor::~GpuMonitor() = default;

GpuSample GpuMonitor::sample() const {
    GpuSample s;
    if (Library::Memory info{}; library_->memory_info(gpu_, &info) == success) {
        s.memory_used = info.used;
        s.memory_total = info.total;
    }
    unsigned value = 0;
    constexpr double thousandth = 1e-3;
    if (library_->power_usage(gpu_, &value) == success) s.power = thousandth * value;
    if (library_->power_limit(gpu_, &value) == success) s.power_limit = thousandth * value;
    if (unsigned long long spent = 0;
        library_->energy != nullptr && library_->energy(gpu_, &spent) == success)
        s.energy = thousandth * double(spent);
    if (library_->clock(gpu_, sm_clock, &value) == success) s.sm_clock = int(value);
    if (library_->clock(gpu_, memory_clock, &value) == success) s.memory_clock = int(value);
    if (library_->temperature(gpu_, on_die, &value) == success) s.temperature = int(value);
    if (Library::Utilisation rates{}; library_->utilisation(gpu_, &rates) == success)
        s.utilisation = int(rates.gpu);
    if (unsigned long long bits = 0; library_->throttle_reasons(gpu_, &bits) == success)
        s.throttle_reasons = bits;
    return s;
}

std::string throttle_text(uint64_t throttle_reasons) {
    std::string text;
    for (const auto& [bit, name] : reasons)
        if (throttle_reasons & bit) text += (text.empty() ? "" : ", ") + std::string(name);
    return text;
}

}  // namespace coeus
