// SPDX-License-Identifier: Apache-2.0
// Products of experts' rows in 8-bit floats: which GPUs multiply the codes, and that the results are those of
// float32 sums.
#include "coeus/base/small_floats.hpp"
#include "gpu/launches.hpp"
#include "pretended_gpu.hpp"
#include "support/cases.hpp"
#include "support/catch.hpp"
#include "support/mesh_factors.hpp"
#include "support/support.hpp"

#include <optional>
#include <set>

using namespace coeus;
using namespace coeus::test;

namespace {

/// The kernels that are launched.
const std::set<std::string> of_codes = {"grouped_gemm_8_bit"},
                            of_codes_weights = {"grouped_gemm_8_bit_weights"},
                            decoded = {"dequantize", "grouped_gemm"},
                            decoded_weights = {"dequantize", "grouped_gemm_weights"};

bool is_of_weights(const KernelCase& c) {
    return c.name.starts_with("scaled_grouped_gemm_weights");
}

/// Runs the case, and compares with double.
std::set<std::string> launches_of(const Device& gpu, const KernelCase& c, Dtype type = Dtype::bf16) {
    INFO(c.name << " in " << name_of(type) << " on sm_" << gpu.architecture());
    Launches launches;
    const Operands truth = run_case(c, cpu_kernels(), Dtype::f64, Dtype::bf16),
                   result = run_case_on(gpu, c, type, Dtype::bf16, 1, &launches);
    for (size_t i = 0; i < c.arguments.size(); ++i) {
        if (c.arguments[i].role == Role::input) continue;
        const bool is_rounded = result[i].dtype == Dtype::bf16;
        CHECK(normalised_error(values_of(result[i]), values_of(truth[i])) <=
              (is_rounded ? c.bound_bf16 : 1e-6));
        CHECK(nothing_beside(c, result, i));
    }
    return launches.names;
}

std::set<std::string> launches_of(int architecture, const KernelCase& c) {
    const PretendedGpu gpu(architecture);
    return launches_of(gpu.get(), c);
}

KernelCase emulated(KernelCase c) {
    c.call = [call = c.call](const Kernels& kernels, Exec& e, const Operands& o) {
        e.emulates_8_bits = true;
        call(kernels, e, o);
    };
    return c;
}

struct ShortSums {
    ShortSums() { emulation::shortens_sums = true; }
    ~ShortSums() { emulation::shortens_sums = false; }
};

}  // namespace

TEST_CASE("products of experts in 8-bit floats multiply the codes from sm_89 on, and agree with double") {
    for (const int architecture : {89, 90})  // which multiply in 8 bits, and in half precision
        for (const KernelCase& c : scaled_grouped_cases()) {
            const PretendedGpu gpu(architecture);
            const auto& expected = is_of_weights(c) ? of_codes_weights : of_codes;
            for (const Dtype type : {Dtype::bf16, Dtype::f32})
                // asked for, since Hopper has a faster way
                CHECK(launches_of(gpu.get(), experts_in_8_bits(c, true), type) == expected);
        }
    for (const KernelCase& c : {scaled_grouped_cases().front(), scaled_grouped_cases().back()})
        for (const int architecture : {100, 120})
            CHECK(launches_of(architecture, c) == (is_of_weights(c) ? of_codes_weights : of_codes));
}

TEST_CASE(
    "products of experts in 8-bit floats are decoded on sm_80 and sm_90, if the run or the user says so, and "
    "for odd sizes") {
    const auto by_mma = [](const KernelCase& c) { return with_options(c, {.experts = ExpertsKernel::mma}); };
    for (const KernelCase& c : scaled_grouped_cases()) {
        const auto& expected = is_of_weights(c) ? decoded_weights : decoded;
        CHECK(launches_of(80, c) == expected);
        CHECK(launches_of(90, by_mma(c)) == expected);
        CHECK(launches_of(89, emulated(c)) == expected);
        CHECK(launches_of(89, experts_in_8_bits(c, false)) == expected);
    }
    for (const KernelCase& c : expert_cases())
        if (c.name.starts_with("scaled_grouped") && c.name.ends_with(" 5 x 2 of 3"))
            CHECK(launches_of(89, c) == (is_of_weights(c) ? decoded_weights : decoded));
}

TEST_CASE("products of experts in 8-bit floats sum in float32, also if tensor cores keep 14 bits of sums") {
    const ShortSums short_sums;
    constexpr int64_t rows = 32, columns = 16, depth = 4096 + 48;
    const uint8_t code = encode<E4m3>(1.125F);  // 64 of its squares have 14 bits, more have not
    const float one = 1;
    const int32_t place[] = {0, int32_t(rows)};
    const PretendedGpu pretended(89);
    const Device* const gpu = &pretended.get();
    const auto codes = [&](const Shape& shape) {
        OwnedTensor there(Dtype::u8, shape, "codes", gpu->memory());
        const std::vector<uint8_t> all(size_t(shape.count()), code);
        gpu->copy(there.view.data, all.data(), shape.count());
        return there;
    };
    const auto a = codes({rows, depth}), b = codes({columns, depth}), dy = codes({rows, columns});
    const OwnedTensor d(Dtype::f32, {rows, columns}, "d", gpu->memory()),
        scale(Dtype::f32, {1}, "scale", gpu->memory()), places(Dtype::i32, {2}, "groups", gpu->memory());
    gpu->copy(scale.view.data, &one, sizeof one);
    gpu->copy(places.view.data, place, sizeof place);
    const Groups groups = {
        .begins = places.view.slice_rows(0, 1), .counts = places.view.slice_rows(1, 1), .assignments = rows};
    const auto operand = [&](const OwnedTensor& t) {
        return quantized(t, Dtype::fp8_e4m3, ScaleGroups::one, scale.view);
    };
    Exec exec(*gpu);
    cuda_kernels().scaled_grouped_gemm(exec, d, operand(a), transposed(operand(b)), groups, true);
    exec.queue->finish();
    std::vector<float> sums(size_t(rows * columns));
    gpu->copy(sums.data(), d.view.data, d.view.bytes());
    for (const float sum : sums) REQUIRE(sum == float(depth) * 1.125F * 1.125F);
}

TEST_CASE("products of experts in 8-bit floats use exactly the workspace planned for their architecture") {
    for (const int architecture : {80, 89, 90, 100, 120})
        for (const std::optional<bool> asked : {std::optional<bool>(), {false}, {true}})
            for (const KernelCase& usual : scaled_grouped_cases()) {
                const KernelCase c = experts_in_8_bits(usual, asked);
                INFO(c.name << " on sm_" << architecture << (!asked ? "" : *asked ? ", codes" : ", decoded"));
                const PretendedGpu gpu(architecture);
                const Operands operands = prepared_operands(c, Dtype::bf16, Dtype::bf16);
                const int64_t planned = planned_bytes(c, operands, 1, dry_cuda_kernels(), architecture);
                const bool multiplies_codes = architecture >= 89 && asked.value_or(architecture != 90);
                CHECK((planned == 0) == multiplies_codes);
                Exec exec;
                exec.architecture = architecture;
                exec.workspace = Arena(planned, "the workspace of " + c.name);
                c.call(cuda_kernels(), exec, operands);
                CHECK(exec.workspace.peak() == planned);
                CHECK(planned <= planned_bytes(c, operands, 1, dry_cuda_kernels()));  // for an unknown GPU
            }
}
