// SPDX-License-Identifier: Apache-2.0
// The kernels of a GPU have the duties of those of tests/unit/kernels/table.cpp, and no result depends on the
// order in which threads run between two barriers.
#include "gpu/gpu.hpp"
#include "support/cases.hpp"
#include "support/support.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstdlib>

using namespace coeus;
using namespace coeus::test;

namespace {

Operands run_in_order(const KernelCase& c, uint64_t order) {
    set_order(order);
    return run_case_on(the_gpu(), c, Dtype::bf16, Dtype::bf16);
}

// All, or where a tool makes each of them slow (COEUS_GPU_CASES=few) every seventh.
std::vector<KernelCase> cases() {
    std::vector<KernelCase> all = test_cases();
    if (!std::getenv("COEUS_GPU_CASES")) return all;
    size_t number = 0;
    std::erase_if(all, [&](const KernelCase&) { return number++ % 7 != 0; });
    return all;
}

}  // namespace

TEST_CASE("GPU kernels agree with double, write all of their outputs and nothing beside them") {
    for (const KernelCase& c : cases())
        for (Dtype type : {Dtype::f32, Dtype::bf16}) {
            const Operands truth = run_case(c, cpu_kernels(), Dtype::f64, type);
            const Operands result = run_case_on(the_gpu(), c, type, type);
            for (size_t i = 0; i < c.arguments.size(); ++i) {
                const Argument& argument = c.arguments[i];
                INFO(c.name << ", " << argument.name << " in " << name_of(type));
                if (argument.role != Role::input) {
                    const double error = normalised_error(values_of(result[i]), values_of(truth[i]));
                    CHECK(error <= (type == Dtype::f32 ? c.bound_f32 : c.bound_bf16));
                }
                if (argument.padding == 0 || argument.shape.count() == 0) continue;
                const Tensor whole = result.storage[i].view;
                const Tensor beside =
                    whole.slice_cols(argument.shape.cols(), whole.cols() - argument.shape.cols());
                for (double value : values_of(beside)) REQUIRE(std::isnan(value));
            }
        }
}

TEST_CASE("GPU kernels give the same bits each time") {
    for (const KernelCase& c : cases()) {
        const Operands first = run_in_order(c, 1);
        for (uint64_t order : {2, 3}) {
            INFO(c.name << ", order " << order);
            CHECK(same_bits(first, run_in_order(c, order)));
        }
    }
}
