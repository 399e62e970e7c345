// SPDX-License-Identifier: Apache-2.0
#include "coeus/plan/cpu_peak.hpp"

#include "coeus/base/clock.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace coeus {

namespace {

constexpr int64_t probe_size = 1024;
constexpr double probe_seconds = 0.2, repeated_probe_seconds = 0.02;
// Enough starts that one of them finds the machine idle; later starts do not measure.
constexpr int measuring_starts = 4;

double measure_gemm(Exec& exec, const Kernels& kernels, Dtype dtype, double seconds) {
    Exec probe;
    probe.threads = exec.threads;
    {
        // planning: how much workspace this product needs
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
    kernels.gemm(probe, d, a, transposed(b), {});  // creates the library's plan
    const Timer all;
    do {  // at least once, however long other processes use this core
        const Timer one;
        kernels.gemm(probe, d, a, transposed(b), {});
        best = std::max(best, flops / one.seconds());
    } while (all.seconds() < seconds);
    return best;
}

// Results of earlier starts.
struct EarlierStarts {
    double best = 0;  // the largest, since a busy machine measures less
    int starts = 0;
};

// Reads the lines with this key. Each start that measured has appended one: "FLOP/s <tab> CPU, threads,
// type".
EarlierStarts measured_before(const std::string& cache_file, const std::string& key) {
    EarlierStarts measured;
    double value = 0;
    std::ifstream in(cache_file);
    for (std::string line; in >> value && std::getline(in, line);)
        if (line.size() > 1 && line.substr(1) == key && value > 0) {
            measured.best = std::max(measured.best, value);
            ++measured.starts;
        }
    return measured;
}

}  // namespace

double cpu_peak_flops(Exec& exec, const Kernels& kernels, Dtype dtype, const std::string& cpu,
                      const std::string& cache_file, const Communicator& ranks) {
    const std::string key = fmt::format("{}, {} threads, {}", cpu, exec.threads, name_of(dtype));
    const bool keeps = ranks.rank() == 0 && !cache_file.empty();
    const EarlierStarts before = keeps ? measured_before(cache_file, key) : EarlierStarts{};
    const double known = ranks.all_reduce(before.best, Reduce::max);
    if (ranks.all_reduce(int64_t(before.starts), Reduce::max) >= measuring_starts) return known;
    const double seconds = known > 0 ? repeated_probe_seconds : probe_seconds;
    const double measured = ranks.all_reduce(measure_gemm(exec, kernels, dtype, seconds), Reduce::max);
    if (keeps) {
        std::error_code ignored;
        std::filesystem::create_directories(std::filesystem::path(cache_file).parent_path(), ignored);
        std::ofstream(cache_file, std::ios::app) << fmt::format("{:.4e}\t{}\n", measured, key);
    }
    return std::max(measured, known);
}

}  // namespace coeus
