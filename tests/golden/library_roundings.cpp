// SPDX-License-Identifier: Apache-2.0
#include "library_roundings.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace coeus::test {

namespace {

double rounded(double x) {
    return double(float(bf16(float(x))));
}

// A kernel that writes y also finds its largest magnitude and rounds it, if y has room for that.
void prepare_quantization(Exec& exec, Tensor y) {
    if (y.has_largest()) {
        const Tensor bits(y.largest, Dtype::i32, {1});
        cpu_kernels().zero(exec, bits);
        cpu_kernels().largest_magnitudes(exec, bits, y, ScaleGroups::one, {});
    }
    if (!y.rounded) return;
    if (y.rounded_scale)
        cpu_kernels().quantize(exec, rounded_rows(y), y, {}, rows_form.rule, {});
    else
        cpu_kernels().quantize_values(exec, rounded_rows(y), y, {}, rows_form);
}

// Without an offset, the normalised row is rounded before it is multiplied by the weight.
void rms_norm_of_library(Exec& exec, Tensor y, Tensor rstd, Tensor plus, Tensor x, Tensor weight,
                         const NormForm& form) {
    cpu_kernels().rms_norm(exec, y, rstd, {}, x, weight, form);
    for (int64_t i = 0; i < y.count(); ++i) {
        const auto normal = double(float(element(x, i)) * float(element(rstd, i / y.cols())));
        const double w = element(weight, i % y.cols());
        set_element(y, i, form.offset != 0 ? normal * (form.offset + w) : rounded(normal) * w);
    }
    if (plus) cpu_kernels().add(exec, y, plus);
    prepare_quantization(exec, y);
}
void swiglu_of_library(Exec& exec, Tensor y, Tensor gate_up) {
    const int64_t n = y.cols();
    for (int64_t i = 0; i < y.count(); ++i) {
        const double gate = element(gate_up, i / n * 2 * n + i % n),
                     up = element(gate_up, i / n * 2 * n + n + i % n);
        set_element(y, i, rounded(gate / (1 + std::exp(-gate))) * up);
    }
    prepare_quantization(exec, y);
}
void gemm_of_library(Exec& exec, Tensor d, Operand a, Operand b, Tensor c) {
    const bool is_residual = c && c.data != d.data;
    cpu_kernels().gemm(exec, d, a, b, is_residual ? Tensor{} : c);
    if (is_residual) cpu_kernels().add(exec, d, c);
}
void scaled_gemm_of_library(Exec& exec, Tensor d, Operand a, Operand b, Tensor c, bool fast) {
    const bool is_residual = c && c.data != d.data;
    cpu_kernels().scaled_gemm(exec, d, a, b, is_residual ? Tensor{} : c, fast);
    if (is_residual) cpu_kernels().add(exec, d, c);
}
void rope_of_library(Exec&, Tensor x, Tensor table, Tensor positions, const RopeShape& shape, bool inverse) {
    for (int64_t t = 0; t < x.rows(); ++t)
        for (int64_t head = 0; head < x.cols(); head += shape.head_dim)
            for (int64_t j = 0; j < shape.width / 2; ++j) {
                const bool halves = shape.layout == RopeLayout::half_split;
                const int64_t first = head + shape.first + (halves ? j : 2 * j),
                              second = halves ? first + shape.width / 2 : first + 1;
                bf16* const row = x.row<bf16>(t);
                const int64_t at = positions.as<const int32_t>()[t] * table.cols() + 2 * j;
                const double cosine = rounded(element(table, at)),
                             sine = (inverse ? -1 : 1) * rounded(element(table, at + 1)),
                             a = double(float(row[first])), b = double(float(row[second]));
                row[first] = bf16(float(rounded(a * cosine) + rounded(-b * sine)));
                row[second] = bf16(float(rounded(b * cosine) + rounded(a * sine)));
            }
}

void attention_of_library(Exec& exec, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v,
                          Tensor document_start, const AttentionShape& s) {
    cpu_kernels().attention(exec, out, lse, q, k, v, document_start, s);
    std::vector<double> scores(size_t(s.sequence));
    for (int64_t b = 0; b < s.batch; ++b)
        for (int64_t h = 0; h < s.heads; ++h)
            for (int64_t i = 0; i < s.sequence; ++i) {
                const int64_t kv = h / (s.heads / s.kv_heads), first = b * s.sequence;
                const bf16* const query = q.row<bf16>(first + i) + h * s.head_dim;
                double largest = -INFINITY, sum = 0;
                for (int64_t j = 0; j <= i; ++j) {
                    const bf16* const key = k.row<bf16>(first + j) + kv * s.head_dim;
                    double dot = 0;
                    for (int64_t e = 0; e < s.head_dim; ++e)
                        dot += double(float(query[e])) * double(float(key[e]));
                    scores[size_t(j)] = rounded(rounded(dot) * s.scale);
                    largest = std::max(largest, scores[size_t(j)]);
                }
                for (int64_t j = 0; j <= i; ++j) sum += std::exp(scores[size_t(j)] - largest);
                for (int64_t e = 0; e < s.head_dim; ++e) {
                    double value = 0;
                    for (int64_t j = 0; j <= i; ++j)
                        value += rounded(std::exp(scores[size_t(j)] - largest) / sum) *
                                 double(float(v.row<bf16>(first + j)[kv * s.head_dim + e]));
                    out.row<bf16>(first + i)[h * s.head_dim + e] = bf16(float(value));
                }
            }
}

}  // namespace

void round_like_the_library(Kernels& kernels) {
    kernels.rms_norm = rms_norm_of_library;
    kernels.swiglu = swiglu_of_library;
    kernels.attention = attention_of_library;
    kernels.gemm = gemm_of_library;
    kernels.scaled_gemm = scaled_gemm_of_library;
    kernels.rope = rope_of_library;
}

}  // namespace coeus::test
