// SPDX-License-Identifier: Apache-2.0
// Properties of the CUDA kernels that are checked only on the CPU (tests/stand_ins/cuda); for the others see
// tests/gpu.
#include "gpu/gpu.hpp"
#include "stand_ins/cuda/block.hpp"
#include "support/cases.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <cmath>

using namespace coeus;
using namespace coeus::test;

TEST_CASE("kernels use exactly the workspace planned for a GPU") {
    for (const KernelCase& c : test_cases())
        for (Dtype type : {Dtype::f32, Dtype::bf16}) {
            INFO(c.name << " in " << name_of(type));
            const Operands operands = prepared_operands(c, type, type);
            PlannedExec exec(c, operands, 1, dry_cuda_kernels());
            c.call(cuda_kernels(), exec, operands);
            CHECK(exec.workspace.peak() == planned_bytes(c, operands, 1, dry_cuda_kernels()));
            CHECK(exec.workspace.mark() == 0);
        }
}

TEST_CASE("a planning run counts the launches of kernels that sum over rows") {
    struct Launches : KernelObserver {
        int done = 0, planned_ones = 0;
        void begin(const char*, double, double) override {}
        void launch(const char*) override { ++done; }
        void planned(const PlannedKernel& kernel) override { planned_ones += kernel.launches; }
        void end() override {}
    };
    const auto launches = [](const KernelCase& c, const Kernels& kernels) {
        const Operands operands = prepared_operands(c, Dtype::f32, Dtype::f32);
        PlannedExec exec(c, operands, 1, dry_cuda_kernels());
        Launches seen;
        const Observation observation = exec.observers.add(seen);
        c.call(kernels, exec, operands);
        return &kernels == &dry_cuda_kernels() ? seen.planned_ones : seen.done;
    };
    // 32 blocks of 16 rows, and one more
    for (const auto& [rows, expected] : {std::pair(int64_t(512), 2), std::pair(int64_t(513), 3)}) {
        CAPTURE(rows);
        const KernelCase c = rms_norm_backward_case(rows, 8, Plus::none);
        CHECK(launches(c, cuda_kernels()) == expected);
        CHECK(launches(c, dry_cuda_kernels()) == expected);
    }
}

TEST_CASE("CUDA kernels accept more rows than a grid has blocks in y") {
    const int64_t rows = 65537;  // a grid has at most 65535 blocks in y
    const OwnedTensor gate_up(Dtype::f32, {rows, 2}), dy(Dtype::f32, {rows, 1}), y(Dtype::f32, {rows, 1}),
        dgate_up(Dtype::f32, {rows, 2}), sum(Dtype::f32, {rows, 1});
    for (int64_t i = 0; i < rows; ++i) {
        set_element(gate_up, 2 * i, double(i % 7) - 3);
        set_element(gate_up, 2 * i + 1, double(i % 5));
        set_element(dy, i, double(i % 3));
        set_element(sum, i, 1);
    }
    Exec exec;
    const Kernels& kernels = cuda_kernels();
    kernels.swiglu(exec, y, gate_up);
    kernels.swiglu_backward(exec, dgate_up, dy, gate_up);
    kernels.add(exec, sum, gate_up.view.slice_cols(1, 1));
    int64_t wrong = 0;
    for (int64_t i = 0; i < rows; ++i) {
        const double gate = double(i % 7) - 3, up = double(i % 5), d = double(i % 3),
                     s = 1 / (1 + std::exp(-gate));
        wrong += !(std::fabs(element(y, i) - gate * s * up) <= 1e-5);
        wrong += !(std::fabs(element(dgate_up, 2 * i) - d * up * s * (1 + gate * (1 - s))) <= 1e-5);
        wrong += !(std::fabs(element(dgate_up, 2 * i + 1) - d * gate * s) <= 1e-5);
        wrong += !(element(sum, i) == 1 + up);
    }
    CHECK(wrong == 0);
}

TEST_CASE("norms of rows that one block takes in turn have the bits of those that have a block each") {
    // a device without multiprocessors, and one with 132
    for (const KernelCase& c : {rms_norm_case(20, 512), layer_norm_case(20, 512, true)})
        for (const Dtype type : {Dtype::f32, Dtype::bf16}) {
            CAPTURE(c.name, name_of(type));
            CHECK(same_bits(run_case(c, cuda_kernels(), type, type), run_case_on(the_gpu(), c, type, type)));
        }
}

TEST_CASE("sums of a GPU are those of double, with packs and without") {
    const auto check = [](const Tensor& a) {
        double sum = 0, squares = 0, exact = 0, exact_squares = 0;
        for (int64_t i = 0; i < a.count(); ++i) {
            set_element(a, i, double(i % 13) - 5);
            exact += element(a, i);
            exact_squares += element(a, i) * element(a, i);
        }
        Exec exec;
        exec.workspace = Arena(1 << 16, "workspace");
        cuda_kernels().sum(exec, &sum, a);
        cuda_kernels().sum_of_squares(exec, &squares, a);
        CAPTURE(a.count(), name_of(a.dtype));
        CHECK(sum == exact);  // of small integers
        CHECK(squares == exact_squares);
    };
    for (const Dtype type : {Dtype::f32, Dtype::bf16, Dtype::f64})
        for (const int64_t count : {1, 7, 100, 1003, 20011}) {
            const OwnedTensor a(type, {count});
            check(a);
            if (count > 7) check(a.view.slice_rows(1, count - 1));  // off alignment
        }
}

TEST_CASE("a query that is not finite makes its output not finite, on the CPU and with CUDA") {
    const AttentionShape s = {1, 40, 1, 1, 8, 0.3};
    for (const Kernels* kernels : {&cpu_kernels(), &cuda_kernels()})
        for (const bool cached : {false, true})
            for (const Dtype type : {Dtype::f32, Dtype::bf16}) {
                KernelCase c = cached ? attention_cached_case(s, 1, 0) : attention_case(s, false, false);
                const size_t q = cached ? 3 : 2;
                const Operands operands = prepared_operands(c, type, type);
                for (int64_t j = 0; j < s.head_dim; ++j) set_element(operands[q], j, std::nan(""));
                const Kernels& dry = kernels == &cpu_kernels() ? dry_kernels() : dry_cuda_kernels();
                PlannedExec exec(c, operands, 1, dry);
                c.call(*kernels, exec, operands);
                INFO((kernels == &cpu_kernels() ? "CPU" : "CUDA")
                     << (cached ? ", cached, " : ", ") << name_of(type));
                CHECK(std::isnan(element(operands[0], 0)));
                if (!cached) CHECK(std::isfinite(element(operands[0], s.head_dim)));  // the next query
            }
}
