// SPDX-License-Identifier: Apache-2.0
// The implementations of matrix products from which gemm chooses by the CPU: each against plain loops, even
// if gemm would not choose it on this CPU.
#include "../../../src/kernels/cpu/products/onednn_gemm.hpp"
#include "../../../src/kernels/cpu/products/openblas_gemm.hpp"
#include "../../../src/kernels/cpu/products/packed_gemm.hpp"
#include "../../../src/kernels/cpu/products/thin_gemm.hpp"
#include "coeus/base/random.hpp"
#include "support/cases.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <span>

using namespace coeus;
using namespace coeus::test;

namespace {

struct Case {
    int64_t m, n, k;
    bool a_transposed, b_transposed;
    enum { none, accumulate, residual } c;
};

const Case small_cases[] = {{1, 1, 1, false, false, Case::none},
                            {7, 5, 3, false, true, Case::residual},
                            {33, 17, 64, true, false, Case::accumulate},
                            {64, 96, 31, true, true, Case::none},
                            {50, 130, 70, false, false, Case::residual}};

// Sums over several slabs of the depth, and several blocks of columns: b has 2^22 elements per block.
const Case large_cases[] = {{7, 33, 1601, false, true, Case::residual},
                            {50, 37, 1601, true, false, Case::accumulate},
                            {3, 2700, 1601, false, false, Case::residual},
                            {2, 5600, 768, false, true, Case::none}};

void fill(Tensor t, uint64_t stream) {
    const RandomStream random(1, stream);
    for (int64_t i = 0; i < t.count(); ++i) set_element(t, i, random.uniform(uint64_t(i)) - 0.5);
}

// Runs one implementation over all cases; returns the largest normalised error. `type` is that of a and b,
// `d_type` that of the result; `factor` multiplies the product.
template <class Gemm>
double worst_error(Dtype type, Dtype d_type, const Gemm& gemm, std::span<const Case> cases = small_cases,
                   float factor = 1) {
    double worst = 0;
    for (const Case& c : cases) {
        OwnedTensor a(type, c.a_transposed ? Shape{c.k, c.m} : Shape{c.m, c.k}),
            b(type, c.b_transposed ? Shape{c.n, c.k} : Shape{c.k, c.n});
        OwnedTensor d(d_type, {c.m, c.n}), residual(d_type, {c.m, c.n});
        fill(a, 1), fill(b, 2), fill(d, 3), fill(residual, 4);
        const Tensor added = c.c == Case::none         ? Tensor{}
                             : c.c == Case::accumulate ? Tensor(d)
                                                       : Tensor(residual);
        const std::vector<double> left = values_of(a), right = values_of(b);
        std::vector<double> expected;
        for (int64_t i = 0; i < c.m; ++i)
            for (int64_t j = 0; j < c.n; ++j) {
                double sum = 0;
                for (int64_t p = 0; p < c.k; ++p)
                    sum += left[size_t(c.a_transposed ? p * c.m + i : i * c.k + p)] *
                           right[size_t(c.b_transposed ? j * c.k + p : p * c.n + j)];
                expected.push_back(factor * sum + (added ? element(added, i * c.n + j) : 0));
            }
        Exec exec;
        exec.threads = 2;
        exec.workspace = Arena(1 << 25, "workspace");
        if (!gemm(exec, Tensor(d), Operand(a, c.a_transposed), Operand(b, c.b_transposed), added, c.k))
            return -1;
        worst = worse_of(worst, normalised_error(values_of(d), expected));
    }
    return worst;
}

// With and without a factor.
double error_of_onednn(Dtype type, Dtype d_type) {
    double worst = 0;
    for (const float factor : {1.F, 0.3F}) {
        const auto multiply = [&](auto&&... arguments) { return cpu::onednn_gemm(arguments..., factor); };
        const double error = worst_error(type, d_type, multiply, small_cases, factor);
        if (error < 0) return error;
        worst = worse_of(worst, error);
    }
    return worst;
}

}  // namespace

TEST_CASE("gemm by oneDNN: f32, transposed, accumulated, with a residual, with a factor") {
    const double error = error_of_onednn(Dtype::f32, Dtype::f32);
    CHECK((error == -1 || error <= 1e-6));
    if (cpu::onednn_is_fast(Dtype::f32))
        CHECK(error >= 0);
    else if (error == -1)
        skip("without AVX-512 oneDNN has no kernel of its own for some of these products");
}

TEST_CASE("gemm by oneDNN: bf16 if this CPU has it, and a clear refusal otherwise") {
    for (Dtype d : {Dtype::bf16, Dtype::f32}) {
        const double error = error_of_onednn(Dtype::bf16, d);
        CHECK((error == -1 || error <= (d == Dtype::bf16 ? 4e-3 : 1e-6)));
        if (cpu::onednn_is_fast(Dtype::bf16)) CHECK(error >= 0);
    }
    if (!cpu::onednn_is_fast(Dtype::bf16)) skip("this processor multiplies no matrices in bfloat16");
}

TEST_CASE("gemm by oneDNN refuses a strided destination") {
    OwnedTensor a(Dtype::f32, {4, 4}), d(Dtype::f32, {4, 8});
    Exec exec;
    CHECK_FALSE(cpu::onednn_gemm(exec, d.view.slice_cols(0, 4), Operand(a), Operand(a), {}, 4));
}

TEST_CASE("gemm by OpenBLAS: f64") {
    CHECK(worst_error(Dtype::f64, Dtype::f64,
                      [](auto&&... arguments) { return cpu::openblas_gemm(arguments...), true; }) <= 1e-14);
}

TEST_CASE("gemm by packed panels: f32 and bf16") {
    const auto packed = [](auto&&... arguments) { return cpu::packed_gemm(arguments...), true; };
    CHECK(worst_error(Dtype::f32, Dtype::f32, packed) <= 1e-6);
    CHECK(worst_error(Dtype::bf16, Dtype::f32, packed) <= 1e-6);
    CHECK(worst_error(Dtype::bf16, Dtype::bf16, packed) <= 4e-3);
}

TEST_CASE("gemm by packed panels: slabs of the depth and blocks of columns") {
    const auto packed = [](auto&&... arguments) { return cpu::packed_gemm(arguments...), true; };
    CHECK(worst_error(Dtype::f32, Dtype::f32, packed, large_cases) <= 1e-6);
    CHECK(worst_error(Dtype::bf16, Dtype::f32, packed, large_cases) <= 1e-6);
    CHECK(worst_error(Dtype::bf16, Dtype::bf16, packed, large_cases) <= 4e-3);
}

TEST_CASE("gemm of few rows: each row has the bits that it has alone") {
    for (Dtype type : {Dtype::f64, Dtype::f32, Dtype::bf16})
        for (const int64_t depth : {3, 64, 301}) {
            CAPTURE(name_of(type), depth);
            const Dtype sums = type == Dtype::f64 ? type : Dtype::f32;
            const OwnedTensor a(type, {7, depth}), b(type, {13, depth}), c(sums, {7, 13});
            const OwnedTensor together(sums, {7, 13}), alone(sums, {7, 13});
            fill(a, 1), fill(b, 2), fill(c, 3);
            Exec exec;
            cpu::thin_gemm(exec, together, a, b, c);
            for (int64_t i = 0; i < 7; ++i) {
                const auto row = [&](const OwnedTensor& t) { return t.view.slice_rows(i, 1); };
                cpu::thin_gemm(exec, row(alone), row(a), b, row(c));
            }
            CHECK(values_of(together) == values_of(alone));
        }
}
