// SPDX-License-Identifier: Apache-2.0
// A GPU gives the bytes of 8-bit floats that the CPU gives, for all numbers.
#include "coeus/base/random.hpp"
#include "gpu/gpu.hpp"
#include "support/cases.hpp"
#include "support/catch.hpp"
#include "support/copy_converting.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace coeus;
using namespace coeus::test;

namespace {

constexpr int64_t special_rows = 96, special_columns = 64;

/// Values that are written over the first ones of a matrix, row by row.
using Values = std::vector<double>;

/// The maxima, codes and scales of a matrix of numbers of all magnitudes.
KernelCase special_case(const Values& numbers, Dtype type, ScaleGroups groups, ScaleRule rule) {
    const bool has_codes = scale_type(groups) == Dtype::u8;
    KernelCase c;
    c.name = fmt::format("quantize {} numbers of {}", numbers.size(), name_of(type));
    c.arguments = {
        {"q", Role::output, Kind::code, {special_rows, special_columns}},
        {"scale", Role::output, has_codes ? Kind::code : Kind::scale,
         scale_shape(groups, {special_rows, special_columns})},
        {"bits", Role::update, Kind::index, {count_of_maxima(groups, special_rows, special_columns)}, 1},
        {"x", Role::input, Kind::compute, {special_rows, special_columns}}};
    c.prepare = [=](const Kernels&, Exec&, const Operands& o) {
        const RandomStream random(7, "magnitudes");
        for (int64_t i = 0; i < o[3].count(); ++i) {
            const double size = std::ldexp(element(o[3], i), int(random.uniform(uint64_t(i)) * 40) - 30);
            set_element(o[3], i, size_t(i) < numbers.size() ? numbers[size_t(i)] : size);
        }
    };
    c.call = [=](const Kernels& k, Exec& e, const Operands& o) {
        if (!has_codes) k.largest_magnitudes(e, o[2], o[3], groups, {});
        const bool given = groups == ScaleGroups::one || groups == ScaleGroups::cols;
        k.quantize(e, quantized(o[0], type, groups, o[1]), o[3], given ? o[2] : Tensor(), rule, {});
    };
    return c;
}

/// The same numbers as codes and their transpose, of one pass.
KernelCase special_transposed_case(const Values& numbers, Dtype type) {
    KernelCase c = special_case(numbers, type, ScaleGroups::one, ScaleRule::exact);
    c.arguments.push_back({"transposed", Role::output, Kind::code, {special_columns, special_rows}});
    c.call = [=](const Kernels& k, Exec& e, const Operands& o) {
        k.largest_magnitudes(e, o[2], o[3], ScaleGroups::one, {});
        k.quantize_transposed(e, quantized(o[4], type, ScaleGroups::one, o[1]),
                              quantized(o[0], type, ScaleGroups::one, {}), o[3], o[2], ScaleRule::exact);
    };
    return c;
}

/// Whether the elements are the same. The bits of a NaN in float32 depend on the processor.
bool same_numbers(const Tensor& a, const Tensor& b) {
    for (int64_t i = 0; i < a.count(); ++i)
        if (element(a, i) != element(b, i) && !(std::isnan(element(a, i)) && std::isnan(element(b, i))))
            return false;
    return true;
}

#ifdef __clang__
constexpr bool keeps_signs_of_nan = false;  // it may exchange the factors of a product on the emulated GPU
#else
constexpr bool keeps_signs_of_nan = true;
#endif

/// Whether both have the same bits, but for the signs of NaN if the compiler does not keep them.
bool same_numbers(const KernelCase& c, const Operands& a, const Operands& b) {
    if (keeps_signs_of_nan) return same_bits(a, b);
    for (size_t i = 0; i < c.arguments.size(); ++i) {
        const bool are_codes = c.arguments[i].kind == Kind::code;  // of e4m3: 127 and 255 are NaN
        const auto is_nan = [&](double x) { return std::isnan(x) || (are_codes && (x == 127 || x == 255)); };
        const auto alike = [&](double x, double y) {
            return (is_nan(x) && is_nan(y)) || (x == y && std::signbit(x) == std::signbit(y));
        };
        if (!std::ranges::equal(values_of(a.storage[i].view), values_of(b.storage[i].view), alike))
            return false;
    }
    return true;
}

}  // namespace

TEST_CASE("GPU kernels find the largest magnitude of what they write") {
    for (const LargestCase& c : largest_cases())
        for (const Dtype type : {Dtype::f32, Dtype::bf16}) {
            INFO(c.with_largest.name << " in " << name_of(type));
            const auto run = [&](const KernelCase& one) { return run_case_on(the_gpu(), one, type, type); };
            CHECK(wrong_largest(c, run, prepared_operands(c.with_largest, type, type)) == "");
            CHECK_THROWS_WITH(run(with_wrong_columns(c)), Catch::Contains("largest magnitude"));
        }
}

TEST_CASE("GPU kernels round what they write as the separate kernel does") {
    for (const RoundedCase& c : rounded_cases(false))
        for (const Dtype type : {Dtype::f32, Dtype::bf16}) {
            INFO(c.fused.name << " in " << name_of(type));
            CHECK(same_numbers(c.fused, run_case_on(the_gpu(), c.fused, type, type),
                               run_case_on(the_gpu(), c.separate, type, type)));
        }
    // the longest row, and one that is longer
    const int64_t most = cuda_kernels().most_row_bytes;
    const auto run = [&](int64_t width, Dtype type) {
        const RoundedCase c = rounded_case(glu_case(Activation::silu, 2, width), false);
        return same_bits(run_case_on(the_gpu(), c.fused, type, type),
                         run_case_on(the_gpu(), c.separate, type, type));
    };
    CHECK(run(most / 2, Dtype::bf16));
    CHECK(run(most / 4, Dtype::f32));
    CHECK_THROWS_WITH(run(most / 2 + 1, Dtype::bf16), Catch::Contains("too long"));
}

TEST_CASE("GPU kernels quantize every number to the CPU's bytes") {
    constexpr double infinity = std::numeric_limits<double>::infinity(),
                     nan = std::numeric_limits<double>::quiet_NaN(), tiny = 0x1p-133;
    Values zeros(special_columns + 1, 0.0), many;
    zeros[3] = -0.0;
    // of many magnitudes, with ties
    for (int64_t i = 0; i < special_rows * special_columns; ++i)
        many.push_back((i % 2 ? -1 : 1) * std::ldexp(1 + double(i % 64) / 64, int(i / 64 % 36) - 19));
    const std::vector<Values> special = {{},
                                         zeros,
                                         {nan, 1, -1, 0, -nan, infinity, -infinity},
                                         {1, infinity, -0.0},
                                         {-1, -infinity, 0, 3},
                                         {tiny, -tiny, 1e-20, 1e-38, -3e38},
                                         many};
    const std::vector<std::pair<ScaleGroups, std::vector<ScaleRule>>> forms = {
        {ScaleGroups::one, {ScaleRule::exact, ScaleRule::power_of_two}},
        {ScaleGroups::rows, {ScaleRule::exact, ScaleRule::power_of_two}},
        {ScaleGroups::cols, {ScaleRule::exact, ScaleRule::power_of_two}},
        {ScaleGroups::rows32, {ScaleRule::mx_floor, ScaleRule::mx_rceil}},
        {ScaleGroups::cols32, {ScaleRule::mx_floor, ScaleRule::mx_rceil}}};
    for (const Values& numbers : special)
        for (const Dtype type : {Dtype::fp8_e4m3, Dtype::fp8_e5m2})
            for (const Dtype of_x : {Dtype::f32, Dtype::bf16}) {
                const KernelCase c = special_transposed_case(numbers, type);
                const Operands cpu = run_case(c, cpu_kernels(), of_x, of_x),
                               gpu = run_case_on(the_gpu(), c, of_x, of_x);
                CAPTURE(numbers.size(), name_of(type), name_of(of_x));
                for (const size_t i : {0, 1, 4}) CHECK(same_numbers(cpu[i], gpu[i]));
            }
    for (const Values& numbers : special)
        for (const auto& [groups, rules] : forms)
            for (const ScaleRule rule : rules)
                for (const Dtype type : {Dtype::fp8_e4m3, Dtype::fp8_e5m2})
                    for (const Dtype of_x : {Dtype::f32, Dtype::bf16}) {
                        const KernelCase c = special_case(numbers, type, groups, rule);
                        const Operands cpu = run_case(c, cpu_kernels(), of_x, of_x),
                                       gpu = run_case_on(the_gpu(), c, of_x, of_x);
                        CAPTURE(numbers.size(), int(groups), int(rule), name_of(type), name_of(of_x));
                        for (const size_t i : {0, 1, 2}) CHECK(same_numbers(cpu[i], gpu[i]));
                    }
}
