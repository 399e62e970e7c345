// SPDX-License-Identifier: Apache-2.0
// Products with a search for the fastest algorithm: they meet the same requirements, and a stored choice is
// used from then on.
#include "coeus/kernels/product_options.hpp"

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
    KernelCase tuned = c;
    tuned.call = [call = c.call, folder](const Kernels& kernels, Exec& exec, const Operands& operands) {
        set_product_options(exec, {.folder = folder});
        call(kernels, exec, operands);
    };
    return tuned;
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
