// SPDX-License-Identifier: Apache-2.0
// Matrices of 8-bit floats: scales and elements by their definitions, and slices.
#include "quantization.hpp"

#include "../../../src/kernels/cpu/products/onednn_gemm.hpp"
#include "../../../src/kernels/scales.hpp"
#include "support/cases.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

using namespace coeus;
using namespace coeus::test;

namespace {

constexpr float infinite = std::numeric_limits<float>::infinity(),
                quiet_nan = std::numeric_limits<float>::quiet_NaN();

uint8_t code(const Tensor& q, int64_t i, int64_t j) {
    return static_cast<const uint8_t*>(q.data)[i * q.ld + j];
}
float code_value(Dtype type, uint8_t code) {
    return type == Dtype::fp8_e4m3 ? e4m3_value(code) : e5m2_value(code);
}
float largest_of(Dtype type) {
    return type == Dtype::fp8_e4m3 ? E4m3::largest : E5m2::largest;
}

bool same(const Quantized& a, const Quantized& b) {
    return same_bytes(a.elements, b.elements) && same_bytes(a.scales, b.scales);
}

/// The number of the scale of element (i, j).
int64_t place_of_scale(ScaleGroups groups, const Shape& shape, int64_t matrix, int64_t i, int64_t j) {
    switch (groups) {
        case ScaleGroups::rows: return i;
        case ScaleGroups::cols: return matrix * shape.cols() + j;
        case ScaleGroups::rows32: return i * (shape.cols() / 32) + j / 32;
        case ScaleGroups::cols32: return i / 32 * shape.cols() + j;
        default: return 0;
    }
}

/// The number as torchao computes it, with the logarithm rounded to float32.
float power_of(float s, double (*round)(double)) {
    return float(std::exp2(round(double(float(std::log2(double(s)))))));
}
bool is_normal(float x) {
    return x >= 0x1p-126F && x < infinite;
}
double down(double x) {
    return std::floor(x);
}
double up(double x) {
    return std::ceil(x);
}

/// The factor of the elements of a group by its definition.
float defined_factor(Dtype type, ScaleRule rule, float magnitude) {
    const double largest = largest_of(type);
    switch (rule) {
        case ScaleRule::mx_floor:
            return std::ldexp(1.F, -std::max(-126, std::ilogb(magnitude) - std::ilogb(largest)));
        case ScaleRule::mx_rceil: return 1 / power_of(magnitude / float(largest), up);
        default: {
            const float s = float(largest / std::max(double(magnitude), 1e-12));
            return rule == ScaleRule::exact ? s : power_of(s, down);
        }
    }
}

const Form forms[] = {{Dtype::fp8_e4m3, ScaleGroups::one, ScaleRule::exact},
                      {Dtype::fp8_e5m2, ScaleGroups::one, ScaleRule::exact},
                      {Dtype::fp8_e4m3, ScaleGroups::one, ScaleRule::power_of_two},
                      {Dtype::fp8_e4m3, ScaleGroups::rows, ScaleRule::power_of_two},
                      {Dtype::fp8_e5m2, ScaleGroups::rows, ScaleRule::exact},
                      {Dtype::fp8_e4m3, ScaleGroups::cols, ScaleRule::power_of_two},
                      {Dtype::fp8_e5m2, ScaleGroups::cols, ScaleRule::exact},
                      {Dtype::fp8_e4m3, ScaleGroups::rows32, ScaleRule::mx_floor},
                      {Dtype::fp8_e5m2, ScaleGroups::rows32, ScaleRule::mx_rceil},
                      {Dtype::fp8_e5m2, ScaleGroups::cols32, ScaleRule::mx_floor},
                      {Dtype::fp8_e4m3, ScaleGroups::cols32, ScaleRule::mx_rceil}};

/// Checks the elements and scales of q, whose groups are those of `shape`, by their definitions.
template <class GroupOf>
void check_definition(const Tensor& q, const Tensor& scales, const Tensor& x, const Form& form, int64_t rows,
                      GroupOf&& group_of) {
    std::vector<float> largest(size_t(scales.count()), 0.F);
    const auto place = [&](int64_t i, int64_t j) {
        return size_t(place_of_scale(form.groups, x.shape, group_of(i), i, j));
    };
    for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < x.cols(); ++j)
            largest[place(i, j)] =
                std::max(largest[place(i, j)], std::fabs(float(element(x, i * x.cols() + j))));
    int64_t wrong = 0;
    for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < x.cols(); ++j) {
            const size_t p = place(i, j);
            const bool by_exponent = scales.dtype == Dtype::u8;
            if (largest[p] == 0 && by_exponent) {
                wrong += code(q, i, j) != 0;
                continue;
            }
            const float factor = defined_factor(form.type, form.rule, largest[p]),
                        scaled = float(element(x, i * x.cols() + j)) * factor,
                        scale = by_exponent ? e8m0_value(scales.as<const uint8_t>()[p])
                                            : scales.as<const float>()[p];
            const uint8_t expected =
                form.type == Dtype::fp8_e4m3 ? encode<E4m3>(scaled) : encode<E5m2>(scaled);
            wrong += scale != 1 / factor || code(q, i, j) != expected;
        }
    CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("quantization: scales are rounded to powers of two as float32 logarithms are") {
    for (int n = -126; n <= 127; ++n)
        for (int place = -150; place <= 150; ++place) {
            const uint32_t bits = std::bit_cast<uint32_t>(std::ldexp(1.F, n)) + uint32_t(place);
            const float s = std::bit_cast<float>(bits);
            if (!is_normal(s)) continue;
            INFO("2^" << n << " and " << place << " places");
            REQUIRE(rows::round_down_to_power(s) == power_of(s, down));
        }
    CHECK(rows::round_down_to_power(0) == 0);
    CHECK(std::isnan(rows::round_down_to_power(quiet_nan)));
}

TEST_CASE("quantization: scales of blocks are rounded up as float32 logarithms are") {
    for (const float largest : {E4m3::largest, E5m2::largest})
        for (int n = -126; n <= 127; ++n)
            for (int place = -150; place <= 150; ++place) {
                const float magnitude = std::bit_cast<float>(
                    std::bit_cast<uint32_t>(float(std::ldexp(double(largest), n))) + uint32_t(place));
                const float quotient = magnitude / largest;
                if (!is_normal(magnitude) || !is_normal(quotient)) continue;
                const double power = std::ceil(double(float(std::log2(double(quotient)))));
                INFO(largest << " 2^" << n << " and " << place << " places");
                REQUIRE(double(rows::rceil_scale(rows::magnitude_bits(magnitude), largest).code) ==
                        std::min(127., std::max(-127., power)) + 127);
            }
}

TEST_CASE("quantization: elements and scales by their definitions, for any number of threads") {
    const int64_t row_count = 96, columns = 288;
    for (const Dtype type : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
        const Wide x(type, row_count, columns);
        draw(x, 1);
        for (const Form& form : forms) {
            INFO(text_of(form) << " of " << name_of(type));
            Quantized first(form.type, {1, 1}, ScaleGroups::one);
            for (const int threads : {1, 2, 3}) {
                Threads exec(threads);
                const Quantized q = quantized(cpu_kernels(), exec, x, form);
                if (threads == 1)
                    check_definition(q, q.scales, x, form, row_count, [](int64_t) { return 0; });
                else
                    CHECK(same(q, first));
                first = quantized(cpu_kernels(), exec, x, form);
                Exec planning;
                planning.threads = threads;
                (void)magnitudes(dry_kernels(), planning, x, form.groups);
                dry_kernels().quantize(planning, q, x, {}, form.rule, {});
                CHECK(exec.workspace.peak() == planning.workspace.peak());
                CHECK(exec.workspace.mark() == 0);

                // values, to a tensor with gaps between its rows
                const Wide y(type, row_count, columns);
                cpu_kernels().dequantize(exec, y, q);
                for (int64_t i = 0; i < row_count; i += 7)
                    for (int64_t j = 0; j < columns; ++j) {
                        const int64_t p = place_of_scale(form.groups, x.view.shape, 0, i, j);
                        const double scale = q.scales.view.dtype == Dtype::u8
                                                 ? double(e8m0_value(q.scales.view.as<const uint8_t>()[p]))
                                                 : double(q.scales.view.as<const float>()[p]),
                                     value = double(code_value(form.type, code(q, i, j))) * scale;
                        const double unit = type == Dtype::f64 ? 0 : type == Dtype::f32 ? 0x1p-24 : 0x1p-8;
                        REQUIRE(relatively_close(element(y, i * columns + j), value, unit));
                    }
                for (int64_t i = 0; i < row_count; ++i)
                    REQUIRE(element(y.memory, i * (columns + 3) + columns) == 0);
            }
        }
    }
}

TEST_CASE("quantization: values are those of the codes") {
    const int64_t row_count = 96, columns = 288;
    for (const Dtype type : {Dtype::f32, Dtype::bf16})
        for (const Form& form : forms)
            for (const int threads : {1, 3}) {
                INFO(text_of(form) << " of " << name_of(type) << ", " << threads << " threads");
                const Wide x(type, row_count, columns), y(Dtype::bf16, row_count, columns);
                draw(x, 1);
                // numbers that are rounded to subnormal codes, zeros, and what is not finite
                for (int64_t i = 0; i < x.view.count(); i += 5) set_element(x, i, element(x, i) * 0x1p-8);
                set_element(x, 3, -0.0);
                set_element(x, 33 * columns + 50, double(quiet_nan));
                set_element(x, 70 * columns + 140, double(-infinite));
                Threads exec(threads);
                if (form.rule == ScaleRule::exact && form.groups != ScaleGroups::one) {
                    CHECK_THROWS_WITH(cpu_kernels().quantize_values(exec, y, x, {}, form),
                                      Catch::Matchers::Contains("several scales are not powers of two"));
                    continue;
                }
                Quantized q = quantized(cpu_kernels(), exec, x, form);
                const OwnedTensor expected(Dtype::bf16, {row_count, columns}), scale(Dtype::f32, {1});
                Tensor values = y;
                values.groups = groups_of_values(form);
                values.scale = scale.view.data;
                cpu_kernels().quantize_values(exec, values, x,
                                              magnitudes(cpu_kernels(), exec, x, form.groups), form);
                if (values.groups == ScaleGroups::one) {
                    CHECK(same_bytes(scale, q.scales));
                    q.scales.view.as<float>()[0] = 1;
                }
                cpu_kernels().dequantize(exec, expected, q);
                Exec planning;
                planning.threads = threads;
                dry_kernels().quantize_values(planning, values, x, {}, form);
                CHECK(planning.workspace.peak() ==
                      (form.groups == ScaleGroups::cols ? 2 * padded_bytes(4 * columns) : 0));
                int64_t wrong = 0;
                for (int64_t i = 0; i < row_count; ++i) {
                    for (int64_t j = 0; j < columns; ++j) {
                        const bf16 one = y.view.row<bf16>(i)[j], other = expected.view.row<bf16>(i)[j];
                        wrong +=
                            one.bits != other.bits && !(std::isnan(float(one)) && std::isnan(float(other)));
                    }
                    REQUIRE(element(y.memory, i * (columns + 3) + columns) == 0);
                }
                CHECK(wrong == 0);
            }
}

TEST_CASE("quantization: groups of rows and matrices have columns of their own") {
    const ThreeGroups three;
    const int64_t columns = 96;
    for (const Form& form : forms) {
        INFO(text_of(form));
        Threads exec(2);
        // the padding of groups is zero; rows after the last group are not read
        const OwnedTensor x(Dtype::f32, {ThreeGroups::rows, columns});
        draw(x, 2);
        for (int64_t i = 0; i < ThreeGroups::rows; ++i)
            for (int64_t j = 0; j < columns; ++j)
                if (three.is_padding(i) || i >= ThreeGroups::used)
                    x.view.as<float>()[i * columns + j] = i >= ThreeGroups::used ? quiet_nan : 0;
        const Tensor used = x.view.slice_rows(0, ThreeGroups::used);
        Quantized q(form.type, x.view.shape, form.groups, 3);
        std::memset(q.elements.view.data, 0x55, size_t(x.view.count()));
        // one scale, and those of rows, are of all rows
        const bool by_group = form.groups == ScaleGroups::cols;
        const OwnedTensor bits =
            magnitudes(cpu_kernels(), exec, by_group ? x.view : used, form.groups, 3, three.groups);
        cpu_kernels().quantize(exec, q, x, form.groups == ScaleGroups::rows ? Tensor() : bits, form.rule,
                               three.groups);
        check_definition(q, q.scales, x, form, ThreeGroups::used,
                         [](int64_t i) { return ThreeGroups::group_of(i); });
        for (int64_t i = 0; i < ThreeGroups::rows; ++i)
            for (int64_t j = 0; j < columns; ++j) {
                if (three.is_padding(i)) REQUIRE(code(q, i, j) == 0);
                if (i >= ThreeGroups::used) REQUIRE(code(q, i, j) == 0x55);
            }

        // three matrices of 32 rows, as one tensor
        const Tensor matrices = used.reshape({3, 32, columns});
        const Quantized all = quantized(cpu_kernels(), exec, matrices, form, 3);
        check_definition(all, all.scales, matrices, form, 96, [](int64_t i) { return i / 32; });
    }
}

TEST_CASE("quantization: slices take their scales along") {
    const int64_t row_count = 128, columns = 160;
    const Wide x(Dtype::f32, row_count, columns);
    draw(x, 3);
    for (const Form& form : forms) {
        INFO(text_of(form));
        Threads exec(2);
        const Quantized q = quantized(cpu_kernels(), exec, x, form);
        const OwnedTensor y(Dtype::f32, {row_count, columns}), part(Dtype::f32, {64, 96});
        cpu_kernels().dequantize(exec, y, q);
        const auto slice = [](const Tensor& t) {
            return t.slice_rows(32, 96).slice_cols(64, 96).slice_rows(32, 64);
        };
        cpu_kernels().dequantize(exec, part, slice(q));
        for (int64_t i = 0; i < 64; ++i)
            REQUIRE(std::memcmp(part.view.row<float>(i), slice(y).row<float>(i), 96 * sizeof(float)) == 0);

        // parts of rows or columns that have scales of their own are quantized like the whole
        const bool by_row = form.groups == ScaleGroups::rows, by_column = form.groups == ScaleGroups::cols;
        if (form.groups == ScaleGroups::one) continue;
        const auto own = [&](const Tensor& t) {
            const Tensor some_rows = by_column ? t : t.slice_rows(32, 64);
            return by_row ? some_rows : some_rows.slice_cols(64, 96);
        };
        const Quantized of_part = quantized(cpu_kernels(), exec, own(x), form);
        const Tensor expected = own(q);
        for (int64_t i = 0; i < expected.rows(); ++i)
            for (int64_t j = 0; j < expected.cols(); ++j)
                REQUIRE(code(of_part, i, j) == code(expected, i, j));

        // and also where they are, in a part of the whole
        Quantized in_place(form.type, {row_count, columns}, form.groups);
        const OwnedTensor bits = magnitudes(cpu_kernels(), exec, own(x), form.groups);
        cpu_kernels().quantize(exec, own(in_place), own(x), bits, form.rule, {});
        const OwnedTensor a(Dtype::f64, expected.shape), b(Dtype::f64, expected.shape);
        cpu_kernels().dequantize(exec, a, expected);
        cpu_kernels().dequantize(exec, b, own(in_place));
        CHECK(same_bytes(a, b));
        CHECK(code(in_place, 0, 0) == 0);
    }
}

TEST_CASE("quantization: a largest magnitude includes what is there, and NaN is the largest") {
    Threads exec(2);
    for (const Dtype type : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
        const OwnedTensor x(type, {3, 40});
        set_element(x, 5, -2.5), set_element(x, 41, 7), set_element(x, 90, -infinite);
        OwnedTensor of_rows = magnitudes(cpu_kernels(), exec, x, ScaleGroups::rows);
        const auto at = [&](int64_t i) { return std::bit_cast<float>(of_rows.view.as<int32_t>()[i]); };
        CHECK((at(0) == 2.5F && at(1) == 7 && at(2) == infinite));
        set_element(x, 90, -1), set_element(x, 0, -quiet_nan);
        cpu_kernels().largest_magnitudes(exec, of_rows, x, ScaleGroups::rows, {});
        CHECK((std::isnan(at(0)) && at(1) == 7 && at(2) == infinite));
        for (const ScaleGroups groups : {ScaleGroups::one, ScaleGroups::cols}) {
            const OwnedTensor bits = magnitudes(cpu_kernels(), exec, x, groups);
            CHECK(std::isnan(std::bit_cast<float>(bits.view.as<int32_t>()[0])));
            cpu_kernels().largest_magnitudes(exec, bits, x.view.slice_rows(0, 0), groups, {});
            CHECK(std::isnan(std::bit_cast<float>(bits.view.as<int32_t>()[0])));
        }
    }
}

TEST_CASE("quantization: kernels find the largest magnitude of what they write") {
    for (const LargestCase& c : largest_cases())
        for (const Dtype type : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
            INFO(c.with_largest.name << " in " << name_of(type));
            const auto run = [&](const KernelCase& one) { return run_case(one, cpu_kernels(), type, type); };
            CHECK(wrong_largest(c, run, prepared_operands(c.with_largest, type, type)) == "");
            CHECK_THROWS_WITH(run(with_wrong_columns(c)), Catch::Contains("largest magnitude"));
        }
}

namespace {

// Whether both have the same bits, but for those of NaN in the last operand, which is bfloat16 in bytes: a
// product of two NaN has the bits of one of its factors, whose order the compiler chooses for each kind of
// processor.
bool same_but_for_bits_of_nan(const Operands& a, const Operands& b) {
    for (size_t i = 0; i < a.storage.size(); ++i) {
        const Tensor x = a.storage[i].view, y = b.storage[i].view;
        if (i + 1 < a.storage.size()) {
            if (std::memcmp(x.data, y.data, size_t(x.bytes())) != 0) return false;
            continue;
        }
        std::vector<uint16_t> these(size_t(x.bytes()) / 2), those(these.size());
        std::memcpy(these.data(), x.data, size_t(x.bytes()));
        std::memcpy(those.data(), y.data, size_t(y.bytes()));
        const auto is_nan = [](uint16_t bits) { return (bits & 0x7fff) > 0x7f80; };
        const auto alike = [&](uint16_t p, uint16_t q) { return p == q || (is_nan(p) && is_nan(q)); };
        if (!std::equal(these.begin(), these.end(), those.begin(), alike)) return false;
    }
    return true;
}

}  // namespace

TEST_CASE("quantization: kernels round what they write as the separate kernels do") {
    for (const bool values : {false, true})
        for (const RoundedCase& c : rounded_cases(values))
            for (const Dtype type : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
                if (values && type == Dtype::f64) continue;
                INFO(c.fused.name << " in " << name_of(type));
                const Operands fused = run_case(c.fused, cpu_kernels(), type, type),
                               separate = run_case(c.separate, cpu_kernels(), type, type);
                // with AVX-512 the order is the same in both
                const bool same_order = !values || cpu::onednn_is_fast(Dtype::f32);
                CHECK((same_order ? same_bits(fused, separate) : same_but_for_bits_of_nan(fused, separate)));
            }
}

TEST_CASE("quantization: a tensor without rows writes only the scales") {
    const int64_t row_count = 64, columns = 96;
    const OwnedTensor x(Dtype::bf16, {row_count, columns});
    draw(x, 4);
    const ThreeGroups three;
    for (const Form& form : forms) {
        if (scale_type(form.groups) == Dtype::u8) continue;
        INFO(text_of(form));
        Threads exec(2);
        const Quantized whole = quantized(cpu_kernels(), exec, x, form);
        const OwnedTensor bits = magnitudes(cpu_kernels(), exec, x, form.groups);
        const Quantized q(form.type, x.view.shape, form.groups);
        cpu_kernels().quantize(exec, q, x.view.slice_rows(0, 0), bits, form.rule, {});
        CHECK(same_bytes(q.scales, whole.scales));
        for (int64_t i = 0; i < x.view.count(); ++i) REQUIRE(code(q, 0, i) == 0);
    }
}

TEST_CASE("quantization: NaN and infinity stay in their groups") {
    const int64_t side = 96;
    for (const Form& form : forms)
        for (const float special : {quiet_nan, -infinite}) {
            INFO(text_of(form) << " with " << special);
            Threads exec(2);
            const OwnedTensor x(Dtype::f32, {side, side});
            draw(x, 5);
            const Quantized clean = quantized(cpu_kernels(), exec, x, form);
            x.view.as<float>()[40 * side + 50] = special;
            const Quantized q = quantized(cpu_kernels(), exec, x, form);
            const OwnedTensor y(Dtype::f32, {side, side});
            cpu_kernels().dequantize(exec, y, q);
            const int64_t place = place_of_scale(form.groups, x.view.shape, 0, 40, 50);
            for (int64_t i = 0; i < side; ++i)
                for (int64_t j = 0; j < side; ++j) {
                    const bool same_group = place_of_scale(form.groups, x.view.shape, 0, i, j) == place;
                    if (!same_group) REQUIRE(code(q, i, j) == code(clean, i, j));
                    // a scale of blocks is finite even for infinity
                    const bool is_nan = std::isnan(special) || scale_type(form.groups) == Dtype::f32;
                    REQUIRE(std::isnan(y.view.as<const float>()[i * side + j]) == (same_group && is_nan));
                }
        }
}

TEST_CASE("quantization: transposed codes have one scale or one for each row, and fit") {
    Exec exec;
    const OwnedTensor x(Dtype::f32, {3, 5}), bits(Dtype::i32, {5});
    const Quantized q(Dtype::fp8_e4m3, {3, 5}, ScaleGroups::one);
    const auto refused = [&](const Tensor& transposed, const Tensor& codes, const char* why) {
        CHECK_THROWS_WITH(
            cpu_kernels().quantize_transposed(exec, transposed, codes, x, bits.view, ScaleRule::exact),
            Catch::Matchers::Contains(why));
    };
    const auto room = [](const Shape& shape, ScaleGroups groups) {
        return Quantized(Dtype::fp8_e4m3, shape, groups);
    };
    refused(room({3, 5}, ScaleGroups::one), {}, "quantize_transposed: shapes do not fit");
    refused(room({5, 3}, ScaleGroups::one), q.view.slice_rows(0, 2),
            "quantize_transposed: shapes do not fit");
    refused(room({5, 3}, ScaleGroups::cols), {},
            "quantize_transposed: the result has one scale, or one for each row");
    refused(room({5, 3}, ScaleGroups::rows), q,
            "quantize_transposed: codes of rows and of columns have different scales");
}
