// SPDX-License-Identifier: Apache-2.0
// The values that a GPU reports, with a stand-in for the driver's library: complete, without the queries that
// the GPU does not support, absent.
#include "coeus/device/gpu_monitor.hpp"

#include "support/catch.hpp"
#include "support/paths.hpp"

#include <dlfcn.h>
#include <utility>

using namespace coeus;

namespace {

// The stand-in; its state is restored at the end.
class StandIn {
public:
    StandIn() : library_(dlopen(test::paths::nvml().c_str(), RTLD_NOW)) { REQUIRE(library_ != nullptr); }
    ~StandIn() {
        unsupported() = "";
        has_driver() = true;
        dlclose(library_);
    }
    StandIn(const StandIn&) = delete;
    StandIn& operator=(const StandIn&) = delete;

    int& users() { return *static_cast<int*>(dlsym(library_, "nvml_users")); }
    bool& has_driver() { return *static_cast<bool*>(dlsym(library_, "nvml_has_driver")); }
    const char*& unsupported() { return *static_cast<const char**>(dlsym(library_, "nvml_unsupported")); }
    unsigned long long& throttle() {
        return *static_cast<unsigned long long*>(dlsym(library_, "nvml_throttle"));
    }

private:
    void* library_;
};

int absent_figures(const GpuSample& s) {
    return !s.memory_used + !s.memory_total + !s.power + !s.power_limit + !s.energy + !s.sm_clock +
           !s.memory_clock + !s.temperature + !s.utilisation + !s.throttle_reasons;
}

constexpr const char* bus = "0000:17:00.0";

std::optional<GpuMonitor> monitor_of() {
    return GpuMonitor::of_bus_id(bus, test::paths::nvml());
}

}  // namespace

TEST_CASE("GPU monitor: every value, and one library for each monitor") {
    StandIn nvml;
    nvml.throttle() = 0x4;
    {
        auto first = monitor_of(), second = monitor_of();
        CHECK(nvml.users() == 2);
        for (auto* found : {&first, &second}) {
            REQUIRE(found->has_value());
            const GpuMonitor monitor = *std::move(*found);
            CHECK(monitor.name() == "NVIDIA H100 80GB HBM3");
            CHECK(monitor.driver() == "570.86.15");
            const GpuSample s = monitor.sample();
            CHECK(s.memory_used == uint64_t(30) << 30);
            CHECK(s.memory_total == uint64_t(80) << 30);
            CHECK(s.power == 650.5);
            CHECK(s.energy == 1234.5);
            CHECK(s.power_limit == 700.0);
            CHECK(s.sm_clock == 1755);
            CHECK(s.memory_clock == 2619);
            CHECK(s.temperature == 61);
            CHECK(s.utilisation == 98);
            REQUIRE(s.throttle_reasons.has_value());
            CHECK(throttle_text(*s.throttle_reasons) == "power cap");
        }
    }
    CHECK(nvml.users() == 0);
}

TEST_CASE("GPU monitor: only the values that a GPU does not support are absent") {
    StandIn nvml;
    const auto monitor = monitor_of();
    REQUIRE(monitor.has_value());
    CHECK(absent_figures(monitor->sample()) == 0);
    for (const char* query : {"power", "power limit", "energy", "SM clock", "memory clock", "temperature",
                              "utilisation", "throttle"}) {
        CAPTURE(query);
        nvml.unsupported() = query;
        CHECK(absent_figures(monitor->sample()) == 1);
    }
    nvml.unsupported() = "memory";
    CHECK(absent_figures(monitor->sample()) == 2);
    nvml.unsupported() = "power";
    CHECK_FALSE(monitor->sample().power.has_value());
    nvml.unsupported() = "name";
    const auto nameless = monitor_of();
    REQUIRE(nameless.has_value());
    CHECK(nameless->name().empty());
}

TEST_CASE("GPU monitor: there is none without the library, the driver or the GPU") {
    StandIn nvml;
    CHECK_FALSE(GpuMonitor::of_bus_id(bus, "/absent/libnvidia-ml.so.1").has_value());
    CHECK_FALSE(GpuMonitor::of_bus_id(bus, "libm.so.6").has_value());  // a library without NVML's functions
    CHECK_FALSE(GpuMonitor::of_bus_id("0000:99:00.0", test::paths::nvml()).has_value());
    nvml.has_driver() = false;
    CHECK_FALSE(monitor_of().has_value());
    CHECK(nvml.users() == 0);
}

TEST_CASE("GPU monitor: throttle reasons in words") {
    CHECK(throttle_text(0).empty());
    CHECK(throttle_text(0x1).empty());  // idle
    CHECK(throttle_text(0x20) == "thermal");
    CHECK(throttle_text(0x48) == "hardware slow-down, thermal (hardware)");
    CHECK(throttle_text(0x80) == "power brake");
    CHECK(throttle_text(uint64_t(1) << 40).empty());  // of a future driver
}

TEST_CASE("GPU monitor: GPUs that the driver hides from this process") {
    StandIn nvml;
    const std::string other = "0000:18:00.0";
    CHECK(GpuMonitor::hidden({bus, other}, test::paths::nvml()) == std::vector<std::string>{other});
    CHECK(GpuMonitor::hidden({bus}, test::paths::nvml()).empty());
    CHECK(nvml.users() == 0);
    nvml.has_driver() = false;
    CHECK(GpuMonitor::hidden({bus, other}, test::paths::nvml()).empty());
    CHECK(GpuMonitor::hidden({bus, other}, "/absent/libnvidia-ml.so.1").empty());
}
