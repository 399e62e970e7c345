// SPDX-License-Identifier: Apache-2.0
// Products of 8-bit floats. Operands are small integers times powers of two, so that all sums are exact and
// results must be equal.
#include "../../../src/kernels/cpu/workspace.hpp"
#include "coeus/base/small_floats.hpp"
#include "quantization.hpp"
#include "support/cases.hpp"
#include "support/catch.hpp"
#include "support/library_products.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

using namespace coeus;
using namespace coeus::test;

namespace {

/// Codes of integers up to 3 and scales that are powers of two, so that sums of products are exact in
/// float32. E8M0 scales are 1 to 4, since their sums have several.
Quantized exact_operand(Dtype type, const Shape& shape, ScaleGroups groups, uint64_t seed,
                        int64_t matrices = 1) {
    Quantized q(type, shape, groups, matrices);
    uint64_t state = seed * 0x9e3779b97f4a7c15U + 1;
    const auto next = [&](uint64_t numbers) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        return (state >> 33) % numbers;
    };
    uint8_t codes[7];
    for (int i = 0; i < 7; ++i)
        codes[i] = type == Dtype::fp8_e4m3 ? encode<E4m3>(float(i - 3)) : encode<E5m2>(float(i - 3));
    auto* const element = static_cast<uint8_t*>(q.elements.view.data);
    for (int64_t i = 0; i < shape.count(); ++i) element[i] = codes[next(7)];
    for (int64_t i = 0; i < q.scales.view.count(); ++i)
        if (scale_type(groups) == Dtype::u8)
            q.scales.view.as<uint8_t>()[i] = uint8_t(127 + next(3));
        else
            q.scales.view.as<float>()[i] = std::ldexp(1.F, int(next(7)) - 3);
    return q;
}

std::vector<double> decoded_values(const Tensor& q) {
    std::vector<double> all(size_t(q.count()), 0.0);
    Threads exec(2, 64);
    cpu_kernels().dequantize(exec, Tensor(all.data(), Dtype::f64, {q.rows(), q.cols()}), q);
    return all;
}

/// The values of an operand, as quantize_values gives them.
struct Values {
    OwnedTensor elements;
    Tensor view;

    Values(const Quantized& q, ScaleRule rule)
        : elements(Dtype::bf16, {q.view.rows(), q.view.cols()}), view(elements) {
        view.groups = groups_of_values({q.view.dtype, q.view.groups, rule});
        Tensor codes = q;
        const float one = 1;
        if (view.groups == ScaleGroups::one) {
            view.scale = q.view.scale;
            codes.scale = const_cast<float*>(&one);
        }
        Threads exec(1, 64);
        cpu_kernels().dequantize(exec, elements, codes);
    }
};

/// op(a) op(b) in double. Everything is exact.
OwnedTensor exact_product(const Operand& a, const Operand& b, int64_t rows, int64_t columns) {
    std::vector<double> x = decoded_values(a.tensor), y = decoded_values(b.tensor);
    Threads exec(2, 64);
    OwnedTensor d(Dtype::f64, {rows, columns});
    cpu_kernels().gemm(
        exec, d, Operand({x.data(), Dtype::f64, {a.tensor.rows(), a.tensor.cols()}}, a.is_transposed),
        Operand({y.data(), Dtype::f64, {b.tensor.rows(), b.tensor.cols()}}, b.is_transposed), {});
    return d;
}

/// A product of exact operands, and its elements.
class ExactProduct {
public:
    ExactProduct(const Shape& result, int64_t depth, bool transpose_a, bool transpose_b, const Form& a,
                 const Form& b)
        : rows_(result[0]),
          columns_(result[1]),
          qa_(exact_operand(a.type, transpose_a ? Shape{depth, rows_} : Shape{rows_, depth}, a.groups, 1)),
          qb_(exact_operand(b.type, transpose_b ? Shape{columns_, depth} : Shape{depth, columns_}, b.groups,
                            2)),
          a_(qa_, transpose_a),
          b_(qb_, transpose_b),
          values_a_(qa_, a.rule),
          values_b_(qb_, b.rule),
          truth_(exact_product(a_, b_, rows_, columns_)),
          text_(fmt::format("{} x {} x {} {}{} of {} and {}", rows_, columns_, depth, transpose_a ? 't' : 'n',
                            transpose_b ? 't' : 'n', text_of(a), text_of(b))) {}

    /// `residual`: none, d itself, or another tensor. Each operand: codes, or (except in double) values.
    void check(Dtype type, bool gaps, Residual residual, int threads) const {
        for (const bool values_of_a : {false, true})
            for (const bool values_of_b : {false, true})
                if (type != Dtype::f64 || (!values_of_a && !values_of_b))
                    check(type, gaps, residual, threads,
                          values_of_a ? Operand(values_a_.view, a_.is_transposed) : a_,
                          values_of_b ? Operand(values_b_.view, b_.is_transposed) : b_);
    }
    void check(Dtype type, bool gaps, Residual residual, int threads, const Operand& a,
               const Operand& b) const {
        INFO(text_ << " in " << name_of(type) << ", gaps " << gaps << ", residual " << int(residual) << ", "
                   << threads << " threads, operands " << name_of(a.tensor.dtype) << " and "
                   << name_of(b.tensor.dtype));
        const Wide d(type, rows_, columns_, gaps ? 5 : 0), other(type, rows_, columns_);
        const Tensor plus = residual == Residual::none         ? Tensor()
                            : residual == Residual::accumulate ? d.view
                                                               : other.view;
        const auto added = [&](int64_t i) { return plus ? double(i % 9) - 4 : 0; };
        for (int64_t i = 0; plus && i < plus.count(); ++i) set_element(plus, i, added(i));
        Exec planning;
        planning.threads = threads;
        dry_kernels().scaled_gemm(planning, d, a, b, plus, false);
        Threads exec(threads, planning.workspace.peak());
        cpu_kernels().scaled_gemm(exec, d, a, b, plus, false);
        const int64_t planned = planning.workspace.peak(), used = exec.workspace.peak();
        const bool by_library = type != Dtype::f64 && library_multiplies(Dtype::bf16);
        CHECK((by_library ? used <= planned : used == planned));
        CHECK(exec.workspace.mark() == 0);
        int64_t wrong = 0;
        for (int64_t i = 0; i < truth_.view.count(); ++i) {
            const double exact = truth_.view.as<double>()[i] + added(i);
            wrong += element(d, i) != (type == Dtype::bf16 ? double(float(bf16(float(exact)))) : exact);
        }
        CHECK(wrong == 0);
        for (int64_t i = 0; gaps && i < rows_; ++i)
            REQUIRE(element(d.memory, i * (columns_ + 5) + columns_) == 0);
    }
    void check_all(int threads) const {
        for (const Dtype type : {Dtype::bf16, Dtype::f32, Dtype::f64}) {
            check(type, false, Residual::none, threads);
            check(type, true, Residual::accumulate, threads);
            check(type, true, Residual::other, threads);
        }
    }

private:
    int64_t rows_, columns_;
    Quantized qa_, qb_;
    Operand a_, b_;
    Values values_a_, values_b_;
    OwnedTensor truth_;
    std::string text_;
};

Form e4m3_by(ScaleGroups groups) {
    return {Dtype::fp8_e4m3, groups, ScaleRule::power_of_two};
}
constexpr Form e5m2_by_one = {Dtype::fp8_e5m2, ScaleGroups::one, ScaleRule::exact};

/// The groups along what is not summed, and the blocks along what is, of a product's operands.
ScaleGroups lines(bool columns) {
    return columns ? ScaleGroups::cols : ScaleGroups::rows;
}
ScaleGroups blocks(bool columns) {
    return columns ? ScaleGroups::cols32 : ScaleGroups::rows32;
}

}  // namespace

TEST_CASE("scaled gemm: products are exact for all groups, types and residuals") {
    const Form one = e4m3_by(ScaleGroups::one);
    for (const auto& [shape, depth] :
         {std::pair(Shape{37, 70}, 96), {{5, 64}, 160}, {{0, 16}, 32}, {{3, 16}, 0}})
        for (const bool ta : {false, true})
            for (const bool tb : {false, true}) {
                const auto check = [&, &shape = shape, depth = depth](const Form& a, const Form& b) {
                    ExactProduct(shape, depth, ta, tb, a, b).check_all(2);
                };
                check(one, one);
                check(e5m2_by_one, one);
                check(e4m3_by(lines(ta)), e4m3_by(lines(!tb)));
                check(e4m3_by(lines(ta)), one);
                check(e4m3_by(blocks(ta)), e4m3_by(blocks(!tb)));
            }
}

TEST_CASE("scaled gemm: products in chunks of rows and columns are exact") {
    const int64_t rows = 460, columns = 6816, depth = 1056;
    const Tensor codes(nullptr, Dtype::fp8_e4m3, {1, 1});
    const workspace::ProductChunk chunk = workspace::chunk_to_decode(rows, columns, depth, codes, codes);
    REQUIRE(chunk.rows < rows);
    REQUIRE(chunk.columns < columns);
    // the last columns need more memory than the first ones, though they are fewer
    const auto planned = [](int64_t n) {
        const Tensor d(nullptr, Dtype::bf16, {rows, n}), a(nullptr, Dtype::fp8_e4m3, {rows, depth}),
            b(nullptr, Dtype::fp8_e4m3, {n, depth});
        return workspace::scaled_gemm(d, a, transposed(b), 2);
    };
    REQUIRE(planned(columns) > planned(chunk.columns));
    const Form one = e4m3_by(ScaleGroups::one);
    for (const bool t : {false, true})
        for (const auto& [a, b] : {std::pair(one, one),
                                   {e4m3_by(lines(t)), e4m3_by(lines(t))},
                                   {e4m3_by(blocks(t)), e4m3_by(blocks(t))}}) {
            const ExactProduct product({rows, columns}, depth, t, !t, a, b);
            product.check(Dtype::bf16, false, Residual::other, 2);
            product.check(Dtype::f32, true, Residual::accumulate, 3);
        }
}

TEST_CASE("scaled gemm: a product has the same bits for any number of threads") {
    const OwnedTensor x(Dtype::f32, {96, 160}), w(Dtype::f32, {224, 160});
    draw(x, 6), draw(w, 7);
    for (const Recipe recipe : {Recipe::tensorwise, Recipe::rowwise, Recipe::mx_floor, Recipe::mx_rceil})
        for (const Dtype type : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
            INFO("recipe " << int(recipe) << " in " << name_of(type));
            OwnedTensor first;
            for (const int threads : {1, 2, 3}) {
                Threads exec(threads);
                const Quantized a = quantized(cpu_kernels(), exec, x, forms_of(recipe).x),
                                b = quantized(cpu_kernels(), exec, w, forms_of(recipe).w);
                OwnedTensor d(type, {96, 224});
                cpu_kernels().scaled_gemm(exec, d, a.view, transposed(b), {}, false);
                if (threads > 1) CHECK(same_bytes(d, first));
                first = std::move(d);
            }
        }
}

TEST_CASE("scaled gemm: products pass on NaN and infinity") {
    for (const Form& a : {e5m2_by_one, Form{Dtype::fp8_e5m2, ScaleGroups::rows, ScaleRule::power_of_two}})
        for (const Dtype type : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
            const Quantized x = exact_operand(a.type, {40, 64}, a.groups, 1),
                            w = exact_operand(Dtype::fp8_e4m3, {48, 64}, ScaleGroups::one, 2);
            auto* const of_x = static_cast<uint8_t*>(x.elements.view.data);
            auto* const of_w = static_cast<uint8_t*>(w.elements.view.data);
            of_x[3 * 64 + 5] = 0xff;                                              // NaN
            of_x[4 * 64 + 6] = 0x7c;                                              // infinity
            for (int j = 0; j < 48; ++j) of_w[j * 64 + 6] = j % 2 ? 0x38 : 0xb8;  // 1 and -1
            Threads exec(2);
            const OwnedTensor d(type, {40, 48});
            cpu_kernels().scaled_gemm(exec, d, x.view, transposed(w), {}, false);
            for (int64_t i = 0; i < 40; ++i)
                for (int64_t j = 0; j < 48; ++j) {
                    const double value = element(d, i * 48 + j);
                    if (i == 3)
                        REQUIRE(std::isnan(value));
                    else if (i == 4)
                        REQUIRE(value == (j % 2 ? 1 : -1) * std::numeric_limits<double>::infinity());
                    else
                        REQUIRE(std::isfinite(value));
                }
        }
}

TEST_CASE("scaled gemm: products of rows in groups are those of each group") {
    const ThreeGroups three;
    const Groups& groups = three.groups;
    const int64_t in = 96, out = 64, rows = ThreeGroups::rows;
    const auto rows_of = [&](const Tensor& t, int64_t g) {
        return t.slice_rows(groups.begins.as<const int32_t>()[g], groups.counts.as<const int32_t>()[g]);
    };
    // a part of group g with the scales of its columns
    const auto with_columns_of = [&](Tensor t, const Tensor& whole, int64_t g) {
        if (t.groups == ScaleGroups::cols) t.scale = static_cast<float*>(whole.scale) + g * whole.cols();
        return t;
    };
    const auto equal_to = [](const Tensor& d, const Tensor& truth) {
        int64_t wrong = 0;
        for (int64_t i = 0; i < truth.count(); ++i) {
            const double exact = element(truth, i);
            wrong += element(d, i) != (d.dtype == Dtype::bf16 ? double(float(bf16(float(exact)))) : exact);
        }
        return wrong == 0;
    };
    for (const Dtype type : {Dtype::f64, Dtype::f32, Dtype::bf16})
        for (const bool by_blocks : {false, true})
            for (const int threads : {1, 3}) {
                INFO(name_of(type) << ", blocks " << by_blocks << ", " << threads << " threads");
                const auto along = by_blocks ? blocks : lines;
                for (const bool transpose : {false, true}) {
                    const Quantized a = exact_operand(Dtype::fp8_e4m3, {rows, in}, along(false), 1),
                                    b = exact_operand(Dtype::fp8_e4m3,
                                                      transpose ? Shape{3 * out, in} : Shape{3 * in, out},
                                                      along(!transpose), 2, 3);
                    const OwnedTensor d(type, {rows, out});
                    std::memset(d.view.data, 0x7f, size_t(d.view.bytes()));
                    Exec planning;
                    planning.threads = threads;
                    dry_kernels().scaled_grouped_gemm(planning, d, a, {b.view, transpose}, groups, false);
                    Threads exec(threads, planning.workspace.peak());
                    cpu_kernels().scaled_grouped_gemm(exec, d, a, {b.view, transpose}, groups, false);
                    CHECK(exec.workspace.peak() == planning.workspace.peak());
                    const int64_t matrix_rows = transpose ? out : in;
                    for (int64_t g = 0; g < 3; ++g) {
                        const Tensor matrix =
                            with_columns_of(b.view.slice_rows(g * matrix_rows, matrix_rows), b, g);
                        const Tensor to = rows_of(d, g);
                        CHECK(
                            equal_to(to, exact_product(rows_of(a, g), {matrix, transpose}, to.rows(), out)));
                    }
                    for (int64_t i = 0; i < rows; ++i) {
                        if (three.is_padding(i)) REQUIRE(element(d, i * out) == 0);
                        if (i >= ThreeGroups::used)
                            REQUIRE(static_cast<uint8_t*>(d.view.slice_rows(i, 1).data)[0] == 0x7f);
                    }
                }

                // gradients of the matrices, to which the padding does not add
                const Quantized dy = exact_operand(Dtype::fp8_e4m3, {rows, out}, along(true), 3, 3),
                                x = exact_operand(Dtype::fp8_e4m3, {rows, in}, along(true), 4, 3);
                const OwnedTensor d(acc_of(type), {3 * out, in});
                for (int64_t i = 0; i < d.view.count(); ++i) set_element(d, i, double(i % 9) - 4);
                Exec planning;
                planning.threads = threads;
                dry_kernels().scaled_grouped_gemm_weights(planning, d, dy, x, d, groups);
                Threads exec(threads, planning.workspace.peak());
                cpu_kernels().scaled_grouped_gemm_weights(exec, d, dy, x, d, groups);
                CHECK(exec.workspace.peak() == planning.workspace.peak());
                for (int64_t g = 0; g < 3; ++g) {
                    const OwnedTensor sums = exact_product(transposed(with_columns_of(rows_of(dy, g), dy, g)),
                                                           with_columns_of(rows_of(x, g), x, g), out, in);
                    for (int64_t i = 0; i < sums.view.count(); ++i)
                        sums.view.as<double>()[i] += double((g * out * in + i) % 9) - 4;
                    CHECK(equal_to(d.view.slice_rows(g * out, out), sums));
                }
            }
}
