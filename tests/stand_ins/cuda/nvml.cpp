// SPDX-License-Identifier: Apache-2.0
// A stand-in for libnvidia-ml.so.1 with one GPU. A test can make its queries fail by name. Loaded by path.
#include <algorithm>
#include <cstring>

extern "C" {

int nvml_users = 0;                 // calls of nvmlInit minus calls of nvmlShutdown
bool nvml_has_driver = true;        // if false, nvmlInit fails
const char* nvml_unsupported = "";  // the query that this GPU does not support
unsigned long long nvml_throttle = 0;

namespace {

constexpr int success = 0, invalid_argument = 2, not_supported = 3, not_found = 6, driver_not_loaded = 9;
int the_gpu = 0;

int answer(const char* query, void* gpu) {
    if (gpu != &the_gpu) return invalid_argument;
    return std::strcmp(nvml_unsupported, query) == 0 ? not_supported : success;
}

int number(const char* query, void* gpu, unsigned* out, unsigned value) {
    const int code = answer(query, gpu);
    if (code == success) *out = value;
    return code;
}

int text(char* out, unsigned length, const char* value) {
    if (length <= std::strlen(value)) return invalid_argument;
    std::copy_n(value, std::strlen(value) + 1, out);
    return success;
}

struct Memory {
    unsigned long long total, free, used;
};
struct Utilisation {
    unsigned gpu, memory;
};

}  // namespace

int nvmlInit_v2() {
    if (!nvml_has_driver) return driver_not_loaded;
    ++nvml_users;
    return success;
}
int nvmlShutdown() {
    --nvml_users;
    return success;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** gpu) {
    *gpu = &the_gpu;
    return std::strcmp(bus_id, "0000:17:00.0") == 0 ? success : not_found;
}
int nvmlSystemGetDriverVersion(char* out, unsigned length) {
    return text(out, length, "570.86.15");
}
int nvmlDeviceGetName(void* gpu, char* out, unsigned length) {
    return answer("name", gpu) == success ? text(out, length, "NVIDIA H100 80GB HBM3") : not_supported;
}
int nvmlDeviceGetMemoryInfo(void* gpu, Memory* out) {
    const int code = answer("memory", gpu);
    if (code == success) *out = {.total = 80ull << 30, .free = 50ull << 30, .used = 30ull << 30};
    return code;
}
int nvmlDeviceGetPowerUsage(void* gpu, unsigned* out) {
    return number("power", gpu, out, 650500);
}
int nvmlDeviceGetEnforcedPowerLimit(void* gpu, unsigned* out) {
    return number("power limit", gpu, out, 700000);
}
int nvmlDeviceGetTotalEnergyConsumption(void* gpu, unsigned long long* out) {
    const int code = answer("energy", gpu);
    if (code == success) *out = 1234500;
    return code;
}
int nvmlDeviceGetClockInfo(void* gpu, int kind, unsigned* out) {
    if (kind == 1) return number("SM clock", gpu, out, 1755);
    return kind == 2 ? number("memory clock", gpu, out, 2619) : invalid_argument;
}
int nvmlDeviceGetTemperature(void* gpu, int kind, unsigned* out) {
    return kind == 0 ? number("temperature", gpu, out, 61) : invalid_argument;
}
int nvmlDeviceGetUtilizationRates(void* gpu, Utilisation* out) {
    const int code = answer("utilisation", gpu);
    if (code == success) *out = {.gpu = 98, .memory = 40};
    return code;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void* gpu, unsigned long long* out) {
    const int code = answer("throttle", gpu);
    if (code == success) *out = nvml_throttle;
    return code;
}
}
