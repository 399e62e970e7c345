// SPDX-License-Identifier: Apache-2.0
// The CUDA kernels, run on the CPU by tests/emulation: the same duties as those of
// tests/unit/kernels/table.cpp, and no result may depend on the order in which threads run between two
// barriers.
#include "emulation/block.hpp"
#include "support/cases.hpp"
#include "support/support.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>

using namespace coeus;
using namespace coeus::test;

namespace {

Operands run_emulated(const KernelCase& c, Dtype type, uint64_t order) {
    emulation::set_seed(order);
    return run_case(c, cuda_kernels(), type, type, 1, 1, dry_cuda_kernels());
}

bool same_bits(const Operands& a, const Operands& b) {
    for (size_t i = 0; i < a.storage.size(); ++i)
        if (a.storage[i].view.count() > 0 && std::memcmp(a.storage[i].view.data, b.storage[i].view.data,
                                                         size_t(a.storage[i].view.bytes())) != 0)
            return false;
    return true;
}

std::vector<KernelCase> own_kernels() {
    std::vector<KernelCase> cases = test_cases();
    std::erase_if(cases, [](const KernelCase& c) { return c.name.starts_with("gemm"); });
    return cases;
}

}  // namespace

TEST_CASE("CUDA kernels agree with double, write all of their outputs and nothing beside them") {
    for (const KernelCase& c : own_kernels())
        for (Dtype type : {Dtype::f32, Dtype::bf16}) {
            const Operands truth = run_case(c, cpu_kernels(), Dtype::f64, type);
            const Operands result = run_emulated(c, type, 1);
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

TEST_CASE("CUDA kernels give the same bits in any order of threads") {
    for (const KernelCase& c : own_kernels()) {
        const Operands first = run_emulated(c, Dtype::bf16, 1);
        for (uint64_t order : {2, 3}) {
            INFO(c.name << ", order " << order);
            CHECK(same_bits(first, run_emulated(c, Dtype::bf16, order)));
        }
    }
}

TEST_CASE("the workspace planned for a GPU is what its kernels use") {
    for (const KernelCase& c : own_kernels())
        for (Dtype type : {Dtype::f32, Dtype::bf16}) {
            INFO(c.name << " in " << name_of(type));
            const Operands operands = run_emulated(c, type, 1);
            Exec exec = planned_exec(c, operands, 1, dry_cuda_kernels());
            c.call(cuda_kernels(), exec, operands);
            CHECK(exec.workspace.peak() == planned_bytes(c, operands, 1, dry_cuda_kernels()));
            CHECK(exec.workspace.mark() == 0);
        }
}
