// SPDX-License-Identifier: Apache-2.0
#include "coeus/plan/machine.hpp"

#include "coeus/base/clock.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

namespace coeus {

namespace {

constexpr int64_t probe_size = 1024;
constexpr double probe_seconds = 0.2, repeated_probe_seconds = 0.02;

double measure_gemm(Exec& exec, const Kernels& kernels, Dtype dtype, double seconds) {
    Exec probe;
    probe.threads = exec.threads;
    {
        // planning pass: how much workspace this product takes
        const Tensor matrix(nullptr, dtype, {probe_size, probe_size});
        dry_kernels().gemm(probe, matrix, matrix, transposed(matrix), {});
    }
    probe.workspace = Arena(probe.workspace.peak(), "workspace of the peak probe");
    const OwnedTensor own_a(dtype, {probe_size, probe_size}), own_b(dtype, {probe_size, probe_size}),
        own_d(dtype, {probe_size, probe_size});
    const Tensor a = own_a, b = own_b, d = own_d;
    for (int64_t i = 0; i < a.count(); ++i) {
        set_element(a, i, double(i % 7) - 3);
        set_element(b, i, double(i % 5) - 2);
    }
    const double flops = 2.0 * double(probe_size) * double(probe_size) * double(probe_size);
    double best = 0;
    kernels.gemm(probe, d, a, transposed(b), {});  // makes the library's plan
    for (const Timer all; all.seconds() < seconds;) {
        const Timer one;
        kernels.gemm(probe, d, a, transposed(b), {});
        best = std::max(best, flops / one.seconds());
    }
    return best;
}

// Of the lines with this key: "FLOP/s <tab> CPU, threads, type", one a measurement. The best counts, since a
// busy machine shows less; 0: there is none.
double best_of(const std::string& cache_file, const std::string& key) {
    double best = 0, value = 0;
    std::ifstream in(cache_file);
    for (std::string line; in >> value && std::getline(in, line);)
        if (line.size() > 1 && line.substr(1) == key) best = std::max(best, value);
    return best;
}

}  // namespace

std::optional<double> gpu_peak_flops(const std::string& device_name) {
    // the first match counts: longer names come first
    static const std::pair<const char*, double> peaks[] = {
        {"A100", 312e12},   {"A6000", 154.85e12}, {"H100 NVL", 835e12}, {"H100 PCIe", 756e12},
        {"H100", 989.4e12}, {"H200", 989.4e12},   {"H20", 148e12},      {"GB200", 2.5e15},
        {"GB300", 2.5e15},  {"B200", 2.25e15},    {"B300", 2.25e15},    {"L40S", 362e12},
    };
    for (const auto& [name, peak] : peaks)
        if (device_name.find(name) != std::string::npos) return peak;
    return std::nullopt;
}

double cpu_peak_flops(Exec& exec, const Kernels& kernels, Dtype dtype, const std::string& cpu,
                      const std::string& cache_file, const Communicator& ranks) {
    const std::string key = fmt::format("{}, {} threads, {}", cpu, exec.threads, name_of(dtype));
    const bool keeps = ranks.rank() == 0 && !cache_file.empty();
    const double known = ranks.all_reduce(keeps ? best_of(cache_file, key) : 0, Reduce::max);
    const double seconds = known > 0 ? repeated_probe_seconds : probe_seconds;
    const double measured = ranks.all_reduce(measure_gemm(exec, kernels, dtype, seconds), Reduce::max);
    if (keeps && measured > known) {
        std::error_code ignored;
        std::filesystem::create_directories(std::filesystem::path(cache_file).parent_path(), ignored);
        std::ofstream(cache_file, std::ios::app) << fmt::format("{:.4e}\t{}\n", measured, key);
    }
    return std::max(measured, known);
}

double copy_bandwidth(Exec& exec, const Kernels& kernels) {
    const Memory& memory = exec.device->memory();
    const OwnedTensor from(Dtype::f32, {int64_t(16) << 20}, "memory probe", memory),
        to(Dtype::f32, {int64_t(16) << 20}, "memory probe", memory);
    double best = 0;
    for (int i = 0; i < 5; ++i) {
        const Timer one;
        kernels.cast(exec, to, from);
        if (exec.queue) exec.queue->finish();
        best = std::max(best, double(from.view.bytes() + to.view.bytes()) / one.seconds());
    }
    return best;
}

}  // namespace coeus
