// SPDX-License-Identifier: Apache-2.0
// Scales are computed with the logarithms of torchao, and codes are found among all codes.
#include "coeus/base/small_floats.hpp"
#include "naive.hpp"
#include "naive_elements.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

namespace coeus::test {

namespace {

bool is_e4m3(const Tensor& q) {
    return q.dtype == Dtype::fp8_e4m3;
}
double value_of(const Tensor& q, uint8_t code) {
    return is_e4m3(q) ? e4m3_value(code) : e5m2_value(code);
}
uint8_t largest_code(const Tensor& q) {
    return is_e4m3(q) ? E4m3::largest_code : E5m2::largest_code;
}
/// The nearest code, of two the even one.
uint8_t nearest(const Tensor& q, double x) {
    int best = 0;
    for (int code = 1; code <= largest_code(q); ++code) {
        const double d = std::fabs(value_of(q, uint8_t(code)) - std::fabs(x)),
                     of_best = std::fabs(value_of(q, uint8_t(best)) - std::fabs(x));
        if (d < of_best || (d == of_best && code % 2 == 0)) best = code;
    }
    return uint8_t(best | (std::signbit(x) ? 128 : 0));
}

uint8_t& code_at(const Tensor& q, int64_t i, int64_t j) {
    return static_cast<uint8_t*>(q.data)[i * q.ld + j];
}
/// The place of the scale of an element.
int64_t scale_index(const Tensor& q, int64_t i, int64_t j, int64_t group) {
    switch (q.groups) {
        case ScaleGroups::rows: return i;
        case ScaleGroups::cols: return group * q.cols() + j;
        case ScaleGroups::rows32: return i * (q.ld / 32) + j / 32;
        case ScaleGroups::cols32: return i / 32 * q.ld + j;
        default: return 0;
    }
}
double at8(const Tensor& q, int64_t i, int64_t j, int64_t group = 0) {
    const int64_t index = scale_index(q, i, j, group);
    const double scale = scale_type(q.groups) == Dtype::u8
                             ? std::ldexp(1.0, static_cast<const uint8_t*>(q.scale)[index] - 127)
                             : double(static_cast<const float*>(q.scale)[index]);
    return value_of(q, code_at(q, i, j)) * scale;
}

/// Calls f(i, j, group) for the elements of all groups of rows: those of experts, or matrices.
template <class F>
void for_elements(const Tensor& x, const Groups& experts, F f) {
    const auto for_row = [&](int64_t i, int64_t group, bool) {
        for (int64_t j = 0; j < x.cols(); ++j) f(i, j, group);
    };
    const int64_t matrices = x.shape.rank == 3 ? x.shape[0] : 1;
    if (experts)
        for_rows(experts, for_row);
    else
        for (int64_t i = 0; i < x.rows(); ++i) for_row(i, i / (x.rows() / matrices), false);
}

void largest_magnitudes(Exec&, Tensor bits, Tensor x, ScaleGroups groups, const Groups& experts) {
    Tensor place = x;
    place.groups = groups;
    const auto take = [&](int64_t i, int64_t j, int64_t g) {
        const auto magnitude = double(std::bit_cast<uint32_t>(std::fabs(float(at(x, i, j)))));
        const int64_t index = scale_index(place, i, j, g);
        set_element(bits, index, std::fmax(element(bits, index), magnitude));
    };
    if (groups == ScaleGroups::cols) return for_elements(x, experts, take);
    for_elements(Tensor(nullptr, Dtype::f64, {x.rows(), x.cols()}), {}, take);
}

float factor_of(const Tensor& q, double magnitude, ScaleRule rule) {
    const auto s = float(value_of(q, largest_code(q)) / std::fmax(magnitude, 1e-12));
    if (rule == ScaleRule::exact) return s;
    return std::exp2(std::floor(float(std::log2(double(s)))));
}
/// The power of two by which the elements of a block are divided.
int power_of_block(const Tensor& q, float magnitude, ScaleRule rule) {
    if (rule == ScaleRule::mx_floor)
        return std::clamp(int(std::bit_cast<uint32_t>(magnitude) >> 23) - 127 - (is_e4m3(q) ? 8 : 15), -127,
                          128);
    const float quotient = magnitude / float(value_of(q, largest_code(q)));
    return int(std::clamp(std::ceil(float(std::log2(double(quotient)))), -127.0F, 127.0F));
}

void quantize(Exec&, Tensor q, Tensor x, Tensor bits, ScaleRule rule, const Groups& experts) {
    const bool blocks = scale_type(q.groups) == Dtype::u8;
    float not_written = 0;
    if (!q.scale) q.scale = &not_written;
    if (bits && q.groups != ScaleGroups::rows)
        for (int64_t i = 0; i < bits.count(); ++i)
            static_cast<float*>(q.scale)[i] =
                1 / factor_of(q, std::bit_cast<float>(uint32_t(element(bits, i))), rule);
    const auto largest_near = [&](int64_t i, int64_t j) {  // of the row, or of the block
        double largest = 0;
        if (q.groups == ScaleGroups::cols32)
            for (int64_t r = i / 32 * 32; r < i / 32 * 32 + 32; ++r)
                largest = std::fmax(largest, std::fabs(at(x, r, j)));
        else
            for (int64_t c = 0; c < q.cols(); ++c)
                if (q.groups == ScaleGroups::rows || c / 32 == j / 32)
                    largest = std::fmax(largest, std::fabs(at(x, i, c)));
        return largest;
    };
    if (x.rows() == 0) return;
    // computed once for all elements that have a scale; -1: not yet
    std::vector<double> found(blocks || !bits ? size_t(q.rows() * q.ld) : 0, -1);
    const auto largest_with = [&](int64_t index, int64_t i, int64_t j) {
        double& largest = found[size_t(index)];
        if (largest < 0) largest = largest_near(i, j);
        return largest;
    };
    for_elements(q, experts, [&](int64_t i, int64_t j, int64_t g) {
        const int64_t index = scale_index(q, i, j, g);
        double factor = 0;
        if (blocks) {
            const auto largest = float(largest_with(index, i, j));
            const int power = power_of_block(q, largest, rule);
            static_cast<uint8_t*>(q.scale)[index] = uint8_t(power + 127);
            factor =
                power == -127 && rule == ScaleRule::mx_rceil ? 1 : std::ldexp(1.0, -std::max(power, -126));
        } else {
            const int64_t of_bits = q.groups == ScaleGroups::rows ? i : index;
            factor = factor_of(q,
                               bits ? std::bit_cast<float>(uint32_t(element(bits, of_bits)))
                                    : float(largest_with(of_bits, i, j)),
                               rule);
            static_cast<float*>(q.scale)[index] = 1 / float(factor);
        }
        code_at(q, i, j) = nearest(q, double(float(at(x, i, j)) * float(factor)));
    });
}

void quantize_transposed(Exec& exec, Tensor transposed, Tensor q, Tensor x, Tensor bits, ScaleRule rule) {
    std::vector<uint8_t> codes(size_t(x.count()));
    Tensor all(codes.data(), transposed.dtype, {x.rows(), x.cols()});
    all.groups = transposed.groups == ScaleGroups::one ? ScaleGroups::one : ScaleGroups::cols;
    all.scale = transposed.scale;
    quantize(exec, all, x, bits, rule, {});
    for (int64_t i = 0; i < x.rows(); ++i)
        for (int64_t j = 0; j < x.cols(); ++j) {
            code_at(transposed, j, i) = code_at(all, i, j);
            if (q) code_at(q, i, j) = code_at(all, i, j);
        }
}

void dequantize(Exec&, Tensor y, Tensor q) {
    for_elements(q, {}, [&](int64_t i, int64_t j, int64_t g) { set(y, i, j, at8(q, i, j, g)); });
}

void scaled_gemm(Exec&, Tensor d, Operand a, Operand b, Tensor c, bool) {
    const int64_t depth = a.is_transposed ? a.tensor.rows() : a.tensor.cols();
    for (int64_t i = 0; i < d.rows(); ++i)
        for (int64_t j = 0; j < d.cols(); ++j) {
            double sum = c ? at(c, i, j) : 0;
            for (int64_t p = 0; p < depth; ++p)
                sum += (a.is_transposed ? at8(a.tensor, p, i) : at8(a.tensor, i, p)) *
                       (b.is_transposed ? at8(b.tensor, j, p) : at8(b.tensor, p, j));
            set(d, i, j, sum);
        }
}

void scaled_grouped_gemm(Exec&, Tensor d, Tensor a, Operand b, const Groups& groups, bool) {
    for_rows(groups, [&](int64_t i, int64_t g, bool is_padding) {
        for (int64_t j = 0; j < d.cols(); ++j) {
            double sum = 0;
            for (int64_t p = 0; !is_padding && p < a.cols(); ++p)
                sum += at8(a, i, p, g) * (b.is_transposed ? at8(b.tensor, g * d.cols() + j, p, g)
                                                          : at8(b.tensor, g * a.cols() + p, j, g));
            set(d, i, j, sum);
        }
    });
}

void scaled_grouped_gemm_weights(Exec&, Tensor d, Tensor a, Tensor b, Tensor c, const Groups& groups) {
    if (!c)
        for (int64_t i = 0; i < d.rows(); ++i)
            for (int64_t j = 0; j < d.cols(); ++j) set(d, i, j, 0);
    for_rows(groups, [&](int64_t i, int64_t g, bool is_padding) {
        for (int64_t o = 0; !is_padding && o < a.cols(); ++o)
            for (int64_t j = 0; j < b.cols(); ++j) {
                const int64_t row = g * a.cols() + o;
                set(d, row, j, at(d, row, j) + at8(a, i, o, g) * at8(b, i, j, g));
            }
    });
}

}  // namespace

Kernels with_quantization(Kernels table) {
    table.largest_magnitudes = largest_magnitudes;
    table.quantize = quantize;
    table.quantize_transposed = quantize_transposed;
    table.dequantize = dequantize;
    table.scaled_gemm = scaled_gemm;
    table.scaled_grouped_gemm = scaled_grouped_gemm;
    table.scaled_grouped_gemm_weights = scaled_grouped_gemm_weights;
    return table;
}

}  // namespace coeus::test
