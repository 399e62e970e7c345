// SPDX-License-Identifier: Apache-2.0
// Products of 8-bit floats. An 8-bit float is a bfloat16 as well, also after multiplication with a power of
// two. So operands are decoded to bfloat16, with their scales if these are powers of two, and multiplied by
// the usual products: each product of two elements is exact, and sums are float32. Chunks of operands are
// decoded and multiplied while they are in the cache. Operands that are values already are multiplied whole.
// In float64 the values are multiplied.
#include "../../rows/team.hpp"
#include "../cpu.hpp"
#include "../quantization/quantization.hpp"
#include "../workspace.hpp"
#include "onednn_gemm.hpp"

namespace coeus::cpu {

namespace {

using workspace::chunk_of_sums, workspace::chunk_to_decode, workspace::decoded_type;

/// Calls f(first, number) for parts of [0, count) of at most `most`.
template <class F>
void for_chunks(int64_t count, int64_t most, F&& f) {
    for (int64_t first = 0; first < count; first += most) f(first, std::min(most, count - first));
}

/// Rows [first, first + count) of op(operand), and columns.
Operand rows_of(const Operand& operand, int64_t first, int64_t count) {
    return operand.is_transposed ? transposed(operand.tensor.slice_cols(first, count))
                                 : Operand(operand.tensor.slice_rows(first, count));
}
Operand columns_of(const Operand& operand, int64_t first, int64_t count) {
    return operand.is_transposed ? transposed(operand.tensor.slice_rows(first, count))
                                 : Operand(operand.tensor.slice_cols(first, count));
}

/// The operand as values; itself if it has them.
Operand decoded(Exec& exec, Dtype type, const Operand& operand) {
    if (!is_8_bit_float(operand.tensor.dtype)) return operand;
    const Tensor values = exec.workspace.alloc(type, {operand.tensor.rows(), operand.tensor.cols()});
    decode_all(exec, values, operand.tensor, type != Dtype::f64, {});
    return {values, operand.is_transposed};
}

/// The scale that decoded() leaves, or that values are without.
float scale_left(const Operand& operand) {
    return operand.tensor.groups == ScaleGroups::one ? *static_cast<const float*>(operand.tensor.scale) : 1;
}

/// d = factor * sums + c
void scale_sums(Exec& exec, Tensor d, Tensor sums, float factor, Tensor c) {
    dispatch(d.dtype, [&]<class D>(D) {
        parallel_rows(exec, d.rows(), d.cols(), [&](int64_t i) {
            D* const to = d.row<D>(i);
            const float* const sum = sums.row<const float>(i);
            const D* const plus = c ? c.row<const D>(i) : nullptr;
            if (plus)
                Lane().each(d.cols(),
                            [=](int64_t j) { to[j] = store<D>(sum[j] * factor + float(load(plus[j]))); });
            else
                Lane().each(d.cols(), [=](int64_t j) { to[j] = store<D>(sum[j] * factor); });
        });
    });
}

/// d = factor op(a) op(b) + c, for values. `sums_need_memory`: if the library cannot compute d, the
/// sums are computed in the workspace, and then multiplied by the factor.
void multiply_values(Exec& exec, Tensor d, const Operand& a, const Operand& b, Tensor c, int64_t depth,
                     float factor, bool sums_need_memory) {
    if (!sums_need_memory) return Cpu::gemm(exec, d, a, b, c);
    // thin products add in the same order with and without a factor, so kept operands change no bit
    const bool is_fast = depth > 0 && onednn_is_fast(Dtype::bf16) && !workspace::is_thin(d, a, b);
    if (is_fast && onednn_gemm(exec, d, a, b, c, depth, factor)) return;
    const workspace::ProductChunk part_of_d = chunk_of_sums(d.rows(), d.cols());
    for_chunks(d.cols(), part_of_d.columns, [&](int64_t column, int64_t n) {
        const Operand some_b = columns_of(b, column, n);
        for_chunks(d.rows(), part_of_d.rows, [&](int64_t row, int64_t m) {
            const auto part = [=](const Tensor& t) { return t.slice_rows(row, m).slice_cols(column, n); };
            const Operand some_a = rows_of(a, row, m);
            if (is_fast && !c) {
                const Scope scope(exec.workspace);
                const Tensor dense = exec.workspace.alloc(d.dtype, {m, n});
                if (onednn_gemm(exec, dense, some_a, some_b, {}, depth, factor))
                    return Cpu::cast(exec, part(d), dense);
            }
            const Scope scope(exec.workspace);
            const Tensor sums = exec.workspace.alloc(Dtype::f32, {m, n});
            Cpu::gemm(exec, sums, some_a, some_b, {});
            scale_sums(exec, part(d), sums, factor, c ? part(c) : c);
        });
    });
}

}  // namespace

void Cpu::scaled_gemm(Exec& exec, Tensor d, Operand a, Operand b, Tensor c, bool) {
    const int64_t rows = d.rows(), columns = d.cols(),
                  depth = a.is_transposed ? a.tensor.rows() : a.tensor.cols();
    const auto is_possible = [&](const Tensor& t) {
        return is_8_bit_float(t.dtype) || (t.dtype == Dtype::bf16 && d.dtype != Dtype::f64);
    };
    require(is_possible(a.tensor) && is_possible(b.tensor),
            "scaled_gemm: operands must be 8-bit floats or their values");
    if (d.count() == 0) return;
    if (d.dtype == Dtype::f64) {
        const Scope scope(exec.workspace);
        return gemm(exec, d, decoded(exec, Dtype::f64, a), decoded(exec, Dtype::f64, b), c);
    }
    const float factor = scale_left(a) * scale_left(b);
    const workspace::ProductChunk most = chunk_to_decode(rows, columns, depth, a, b);
    const bool sums = workspace::sums_need_memory(d, a, b, most.columns);
    for_chunks(columns, most.columns, [&](int64_t column, int64_t n) {
        const Scope scope(exec.workspace);
        const Operand b_values = decoded(exec, Dtype::bf16, columns_of(b, column, n));
        for_chunks(rows, most.rows, [&](int64_t row, int64_t m) {
            const Scope chunk(exec.workspace);
            const auto part = [=](const Tensor& t) { return t.slice_rows(row, m).slice_cols(column, n); };
            multiply_values(exec, part(d), decoded(exec, Dtype::bf16, rows_of(a, row, m)), b_values,
                            c ? part(c) : c, depth, factor, sums);
        });
    });
}

namespace {

/// The values of operands of experts: of their rows, and of their matrices.
Tensor decoded_rows(Exec& exec, Dtype type, const Tensor& rows, const Groups& groups) {
    const Tensor values = exec.workspace.alloc(type, {rows.rows(), rows.cols()});
    decode_all(exec, values, rows, false, groups);
    return values;
}

}  // namespace

void Cpu::scaled_grouped_gemm(Exec& exec, Tensor d, Tensor a, Operand b, const Groups& groups, bool) {
    const Dtype type = decoded_type(d.dtype);
    const Scope scope(exec.workspace);
    const Tensor matrices = exec.workspace.alloc(type, {b.tensor.rows(), b.tensor.cols()});
    decode_all(exec, matrices,
               b.tensor.reshape({groups.number(), b.tensor.rows() / groups.number(), b.tensor.cols()}), false,
               {});
    grouped_gemm(exec, d, decoded_rows(exec, type, a, groups), {matrices, b.is_transposed}, groups);
}

void Cpu::scaled_grouped_gemm_weights(Exec& exec, Tensor d, Tensor a, Tensor b, Tensor c,
                                      const Groups& groups) {
    const Dtype type = decoded_type(d.dtype);
    const Scope scope(exec.workspace);
    const Tensor a_values = decoded_rows(exec, type, a, groups),
                 b_values = decoded_rows(exec, type, b, groups);
    grouped_gemm_weights(exec, d, a_values, b_values, c, groups);
}

}  // namespace coeus::cpu
