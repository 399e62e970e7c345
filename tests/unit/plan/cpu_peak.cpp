// SPDX-License-Identifier: Apache-2.0
#include "coeus/plan/cpu_peak.hpp"

#include "coeus/base/clock.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <algorithm>

using namespace coeus;
using namespace coeus::test;

namespace {

int gemm_calls = 0;
constexpr double gemm_seconds = 1e-3;

// The CPU's kernels, with a product that only counts calls and takes some time.
Kernels counting_kernels() {
    Kernels table = cpu_kernels();
    table.gemm = [](Exec&, Tensor, Operand, Operand, Tensor) {
        ++gemm_calls;
        for (const Timer timer; timer.seconds() < gemm_seconds;) {
        }
    };
    return table;
}

double peak(int threads, Dtype dtype, const std::string& cpu, const std::filesystem::path& cache) {
    Exec exec;
    exec.threads = threads;
    return cpu_peak_flops(exec, counting_kernels(), dtype, cpu, cache.string(), Communicator::self());
}

}  // namespace

TEST_CASE("the CPU's peak is the best ever measured for each CPU, number of threads and type") {
    const TemporaryFolder folder;
    const auto cache = folder.path() / "deep" / "peaks";
    gemm_calls = 0;
    const double first = peak(2, Dtype::f32, "Some CPU @ 2.0 GHz", cache);
    CHECK(first > 0);
    CHECK(gemm_calls > 1);
    CHECK(read_file(cache).ends_with("\tSome CPU @ 2.0 GHz, 2 threads, float32\n"));
    gemm_calls = 0;
    CHECK(peak(2, Dtype::f32, "Some CPU @ 2.0 GHz", cache) >= 0.999 * first);
    CHECK(gemm_calls < 0.03 / gemm_seconds);  // a known peak is measured again in a tenth of the time
    // far above what this machine can do: the value is kept, and after four starts nothing is measured or
    // added to the file
    const std::string best = "1e30\tBest CPU, 2 threads, float32\n";
    write_file(cache, "1e20\tBest CPU, 2 threads, float32\n" + best + "2e20\tBest CPU, 2 threads, float32\n");
    gemm_calls = 0;
    CHECK(peak(2, Dtype::f32, "Best CPU", cache) == 1e30);
    CHECK(gemm_calls > 0);
    const std::string before = read_file(cache);
    CHECK(std::count(before.begin(), before.end(), '\n') == 4);
    gemm_calls = 0;
    CHECK(peak(2, Dtype::f32, "Best CPU", cache) == 1e30);
    CHECK(gemm_calls == 0);
    CHECK(read_file(cache) == before);
    CHECK(peak(1, Dtype::f32, "Best CPU", cache) < 1e20);
    CHECK(peak(2, Dtype::bf16, "Best CPU", cache) < 1e20);
    CHECK(peak(2, Dtype::f32, "Best", cache) < 1e20);
    CHECK(read_file(cache).starts_with(before));
}

TEST_CASE("a cache of peaks that is damaged, absent or not writable is measured again") {
    const TemporaryFolder folder;
    for (const std::string damaged :
         {"nonsense\n", "\n\n", "0\tCPU, 1 threads, float32\n", "-5\tCPU, 1 threads, float32\n"}) {
        CAPTURE(damaged);
        write_file(folder / "peaks", damaged);
        gemm_calls = 0;
        CHECK(peak(1, Dtype::f32, "CPU", folder / "peaks") > 0);
        CHECK(gemm_calls > 0);
    }
    gemm_calls = 0;
    CHECK(peak(1, Dtype::f32, "CPU", "") > 0);
    write_file(folder / "file", "");
    CHECK(peak(1, Dtype::f32, "CPU", folder.path() / "file" / "peaks") > 0);
    CHECK(gemm_calls > 0);
}

TEST_CASE("the probe runs the real product in every type") {
    static int real_products;
    Kernels table = cpu_kernels();
    table.gemm = [](Exec& exec, Tensor d, Operand a, Operand b, Tensor bias) {
        cpu_kernels().gemm(exec, d, a, b, bias);
        ++real_products;
    };
    for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
        Exec exec;
        real_products = 0;
        CHECK(cpu_peak_flops(exec, table, dtype, "CPU", "", Communicator::self()) > 0);
        CHECK(real_products > 1);
    }
}
