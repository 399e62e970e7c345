// SPDX-License-Identifier: Apache-2.0
// Products with options: with a search for the fastest algorithm, whose stored choice is used from then on;
// with fewer multiprocessors; in TF32.
#include "gpu/gpu.hpp"
#include "support/cases.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <cmath>

using namespace coeus;
using namespace coeus::test;
namespace fs = std::filesystem;

namespace {

KernelCase autotuned(const KernelCase& c, const std::string& folder) {
    return with_options(c, {.folder = folder});
}

void check_agrees(const KernelCase& c, const ProductOptions& options, Dtype type, double bound) {
    const Operands truth = run_case(c, cpu_kernels(), Dtype::f64, type),
                   result = run_case_on(the_gpu(), with_options(c, options), type, type);
    for (size_t i = 0; i < c.arguments.size(); ++i) {
        if (c.arguments[i].role == Role::input) continue;
        INFO(c.name << " in " << name_of(type) << ", " << c.arguments[i].name);
        CHECK(normalised_error(values_of(result[i]), values_of(truth[i])) <= bound);
    }
}

size_t files_below(const fs::path& folder) {
    size_t count = 0;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder))
        count += entry.is_regular_file();
    return count;
}

}  // namespace

TEST_CASE(
    "GPU kernels: products add to the previous content, even while they search for the fastest algorithm") {
    const TemporaryFolder folder;
    for (const KernelCase& c : test_cases()) {
        if (!c.name.starts_with("gemm")) continue;
        for (Dtype type : {Dtype::f32, Dtype::bf16}) {
            const Operands truth = run_case(c, cpu_kernels(), Dtype::f64, type);
            const Operands first = run_case_on(the_gpu(), autotuned(c, folder.path()), type, type);
            const size_t kept = files_below(folder.path());
            const Operands again = run_case_on(the_gpu(), autotuned(c, folder.path()), type, type);
            INFO(c.name << " in " << name_of(type));
            CHECK(files_below(folder.path()) == kept);
            CHECK(same_bits(first, again));
            for (size_t i = 0; i < c.arguments.size(); ++i) {
                if (c.arguments[i].role == Role::input) continue;
                const double error = normalised_error(values_of(first[i]), values_of(truth[i]));
                CHECK(error <= (type == Dtype::f32 ? c.bound_f32 : c.bound_bf16));
            }
        }
    }
    CHECK(files_below(folder.path()) > 0);
}

TEST_CASE("GPU kernels: products that leave multiprocessors free agree with double") {
    for (const KernelCase& c : test_cases()) {
        if (!c.name.starts_with("gemm")) continue;
        check_agrees(c, {.sm_margin = 16}, Dtype::f32, c.bound_f32);
        check_agrees(c, {.sm_margin = 16}, Dtype::bf16, c.bound_bf16);
    }
}

TEST_CASE("GPU kernels: products in TF32 agree with double as far as operands rounded to 10 bits do") {
    constexpr double rounding = 0x1p-11;
    for (const KernelCase& c : test_cases()) {
        if (!c.name.starts_with("gemm")) continue;
        check_agrees(c, {.allow_tf32 = true}, Dtype::f32, c.bound_f32 + 2 * rounding);
        check_agrees(c, {.allow_tf32 = true}, Dtype::bf16, c.bound_bf16);
    }
}
