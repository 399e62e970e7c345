// SPDX-License-Identifier: Apache-2.0
// Scratch memory of the CPU's kernels in bytes, as pure functions of the shapes. The kernels allocate exactly
// this much from Exec's workspace, and the table for planning runs notes it.
#pragma once

#include "coeus/kernels/kernels.hpp"

#include <algorithm>
#include <limits>

namespace coeus::workspace {

/// Rows whose gradients are summed at a time (column_sums.hpp).
inline constexpr int64_t column_block = 64;
/// Elements that a sum adds at a time.
inline constexpr int64_t sum_block = 1 << 14;

constexpr int64_t bytes(Dtype type, int64_t count) {
    return round_up(count * size_of(type), 64);
}

/// Sums of a gradient, which may be absent, for each block of rows.
inline int64_t column_sums(const Tensor& gradient, int64_t rows) {
    return gradient ? bytes(gradient.dtype, div_ceil(rows, column_block) * gradient.count()) : 0;
}

/// Blocks of rows of one of the sequences among n rows.
inline int64_t blocks_of_sequence(const SequenceRows& rows, int64_t n) {
    return div_ceil(std::min(rows.length, n), column_block);
}
/// Sums for each block of rows of each sequence: one, or two with those of the shift.
inline int64_t modulate_backward(const Tensor& dshift, const Tensor& dscale, const SequenceRows& rows,
                                 int64_t n) {
    return bytes(dscale.dtype, blocks_of_sequence(rows, n) * dscale.count() * (dshift ? 2 : 1));
}

/// One double for each block.
inline int64_t sum(const Tensor& a) {
    return bytes(Dtype::f64, a.dense() ? div_ceil(a.count(), sum_block) : a.rows());
}

/// For one thread of routing: the scores of a token, and those by which it chooses.
inline int64_t route_per_thread(const Tensor& logits) {
    return bytes(logits.dtype, 2 * logits.cols());
}
inline int64_t route(const Tensor& logits, int threads) {
    return threads * route_per_thread(logits);
}

/// Side of attention's tiles, and number of query tiles that share one copy of a key tile.
inline constexpr int64_t attention_tile = 48, attention_query_tiles = 4;

/// A head's width in a tile: whole vectors of 64 bytes.
inline int64_t attention_width(Dtype type, int64_t head_dim) {
    return round_up(head_dim, 64 / size_of(acc_of(type)));
}

/// Elements that an attention product multiplies along its depth at a time: two of bfloat16 if the build has
/// dot products of pairs (AVX-512 BF16, BF16 of Armv8.6).
constexpr int64_t attention_depth([[maybe_unused]] Dtype type) {
#if defined(__AVX512BF16__) || defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    return type == Dtype::bf16 ? 2 : 1;
#else
    return 1;
#endif
}

/// For one thread of the forward: a key tile and a value tile (for pairs also the values' rows), and scores;
/// for each query tile the queries, the output and two statistics.
inline int64_t attention_per_thread(Dtype type, const AttentionShape& s) {
    const int64_t side = attention_tile, depth = attention_depth(type),
                  words = attention_width(type, s.head_dim) / depth,
                  value_width = attention_width(type, s.value_width());
    return bytes(acc_of(type),
                 side * (words + value_width + side + attention_query_tiles * (words + value_width + 2)));
}
inline int64_t attention(Dtype type, const AttentionShape& s, int threads) {
    return threads * attention_per_thread(type, s);
}

/// For one thread of the backward. For a sequence and head: keys (for pairs twice), values, and the gradients
/// of both. For a tile: rows and transposed rows of queries and of the outputs' gradients (for pairs once
/// more), the queries' gradients, two tiles of scores (for pairs twice) and two statistics.
inline int64_t attention_backward_per_thread(Dtype type, const AttentionShape& s) {
    const int64_t width = attention_width(type, s.head_dim), side = attention_tile,
                  depth = attention_depth(type), words = width / depth,
                  value_width = attention_width(type, s.value_width()), value_words = value_width / depth;
    const int64_t of_keys = depth * words + value_words + width + value_width,
                  of_queries = (1 + depth) * (words + value_words) + width + (1 + depth) * side + 2;
    return bytes(acc_of(type), of_keys * round_up(s.keys().count, side) + side * of_queries);
}
inline int64_t attention_backward(Dtype type, const AttentionShape& s, int threads) {
    return threads * attention_backward_per_thread(type, s);
}

/// For one thread of attention over a cache: for each query of a key/value head, its scores and an output.
inline int64_t attention_cached_per_thread(Dtype type, const AttentionShape& s) {
    return bytes(acc_of(type), s.heads / s.kv_heads * (s.sequence + s.value_width()));
}
inline int64_t attention_cached(Dtype type, const AttentionShape& s, int threads) {
    return threads * attention_cached_per_thread(type, s);
}

/// The most columns of a panel of two vectors, on any CPU.
inline constexpr int64_t widest_panel = 32;
/// Rows in a job of gemm, and the largest depth that is summed in registers at a time.
inline constexpr int64_t gemm_rows = 48, gemm_depth = 768;

/// How gemm divides its work: the depth that is summed at a time (a slab); the columns and depth of b that
/// are packed at a time; the elements of a thread's packed rows of a, and of its sums if the output has
/// another type than they have. In that case all slabs must be packed at once, otherwise one.
struct GemmBlocks {
    int64_t slab, columns, depth, rows_copy, sums;
};
inline GemmBlocks gemm_blocks(const Tensor& d, const Operand& a) {
    constexpr int64_t unit = widest_panel, most = int64_t(1)
                                                  << 22;  // whole panels on every CPU; packed elements
    const int64_t whole = a.is_transposed ? a.tensor.rows() : a.tensor.cols();
    if (d.count() == 0 || whole == 0) return {};
    const int64_t slab = div_ceil(whole, div_ceil(whole, gemm_depth));
    const int64_t depth = d.dtype == Dtype::f32 ? slab : whole;
    const int64_t blocks = div_ceil(d.cols(), std::max(unit, most / depth / unit * unit));
    const int64_t columns = round_up(div_ceil(d.cols(), blocks), unit);
    return {slab, columns, depth, gemm_rows * slab, d.dtype == Dtype::f32 ? 0 : gemm_rows * columns};
}
/// Kernels::thin_rows: the most rows of a with which a product with transposed b (a layer's weight) reads b
/// just once, in place.
inline constexpr int64_t thin_rows = 16;
/// Kernels::most_row_bytes.
inline constexpr int64_t most_row_bytes = std::numeric_limits<int64_t>::max();
inline bool is_thin(const Tensor& d, const Operand& a, const Operand& b) {
    return d.rows() <= thin_rows && !a.is_transposed && b.is_transposed;
}
/// f64 needs none: OpenBLAS has its own memory.
inline int64_t gemm(const Tensor& d, const Operand& a, const Operand& b, int threads) {
    if (a.tensor.dtype == Dtype::f64 || is_thin(d, a, b)) return 0;
    const GemmBlocks blocks = gemm_blocks(d, a);
    return bytes(Dtype::f32, blocks.columns * blocks.depth) + bytes(Dtype::f32, threads * blocks.rows_copy) +
           bytes(Dtype::f32, threads * blocks.sums);
}

/// The type to which operands of 8-bit floats are decoded.
constexpr Dtype decoded_type(Dtype result) {
    return result == Dtype::f64 ? Dtype::f64 : Dtype::bf16;
}
/// Rows and columns of a product that are computed at a time.
struct ProductChunk {
    int64_t rows, columns;
};
/// Those of scaled_gemm: so that what is decoded stays in the cache; not fewer than `least`, since each
/// product packs its operands again.
inline ProductChunk chunk_to_decode(int64_t rows, int64_t columns, int64_t depth, const Operand& a,
                                    const Operand& b) {
    constexpr int64_t most_of_b = int64_t(32) << 20, most_of_a = int64_t(8) << 20, most_columns = 4096,
                      least = 256;
    constexpr auto whole = [](int64_t n) { return n / 64 * 64; };
    const int64_t of_column = 2 * std::max<int64_t>(1, depth),
                  most = std::clamp(whole(most_of_b / of_column), least, most_columns),
                  n = is_8_bit_float(b.tensor.dtype) ? std::min(columns, most) : columns,
                  of_row = 2 * depth + 4 * std::clamp<int64_t>(n, 1, most_columns);
    return {
        is_8_bit_float(a.tensor.dtype) ? std::min(rows, std::max(least, whole(most_of_a / of_row))) : rows,
        n};
}
/// The same of a product whose sums need memory of their own.
constexpr ProductChunk chunk_of_sums(int64_t rows, int64_t columns) {
    constexpr int64_t most = int64_t(8) << 20, most_columns = 4096;
    const int64_t n = std::min(columns, most_columns);
    return {std::min(rows, most / (4 * std::max<int64_t>(1, n)) / 64 * 64), n};
}
/// True if there is a factor of the sums, or if the result has gaps between its rows: not all products can
/// compute these in place.
inline bool sums_need_memory(const Tensor& d, const Operand& a, const Operand& b, int64_t columns_at_a_time) {
    return a.tensor.groups == ScaleGroups::one || b.tensor.groups == ScaleGroups::one || !d.dense() ||
           columns_at_a_time < d.cols();
}
inline int64_t scaled_gemm(const Tensor& d, const Operand& a, const Operand& b, int threads) {
    if (d.count() == 0) return 0;
    const auto decoded_bytes = [&](const Operand& operand, int64_t count) {
        return is_8_bit_float(operand.tensor.dtype) ? bytes(decoded_type(d.dtype), count) : 0;
    };
    if (d.dtype == Dtype::f64) return decoded_bytes(a, a.tensor.count()) + decoded_bytes(b, b.tensor.count());
    const int64_t depth = a.is_transposed ? a.tensor.rows() : a.tensor.cols();
    const ProductChunk chunk = chunk_to_decode(d.rows(), d.cols(), depth, a, b);
    const bool sums = sums_need_memory(d, a, b, chunk.columns);
    const auto of_columns = [&](int64_t columns) {
        const auto values = [](int64_t rows, int64_t cols, bool is_transposed) {
            return is_transposed ? transposed(Tensor(nullptr, Dtype::bf16, {cols, rows}))
                                 : Operand(Tensor(nullptr, Dtype::bf16, {rows, cols}));
        };
        const auto product = [&](Dtype type, int64_t rows, int64_t cols) {
            return gemm(Tensor(nullptr, type, {rows, cols}), values(rows, depth, a.is_transposed),
                        values(depth, cols, b.is_transposed), threads);
        };
        const int64_t of_operands = decoded_bytes(a, chunk.rows * depth) + decoded_bytes(b, depth * columns);
        if (!sums) return of_operands + product(d.dtype, chunk.rows, columns);
        const ProductChunk part = chunk_of_sums(chunk.rows, columns);
        const auto of_sums = [&](int64_t n) {
            return bytes(Dtype::f32, part.rows * n) + product(Dtype::f32, part.rows, n);
        };
        return of_operands +
               std::max(of_sums(part.columns), columns % part.columns ? of_sums(columns % part.columns) : 0);
    };
    // the product of the last columns, which are fewer, may pack more of them at a time
    const int64_t last = d.cols() % chunk.columns;
    return std::max(of_columns(chunk.columns), last ? of_columns(last) : 0);
}
/// Factors of columns.
inline int64_t quantize(const Tensor& q) {
    return q.groups == ScaleGroups::cols ? bytes(Dtype::f32, q.cols()) : 0;
}

/// Factors and scales of columns.
inline int64_t quantize_values(const Tensor& x, const Form& form) {
    return form.groups == ScaleGroups::cols ? 2 * bytes(Dtype::f32, x.cols()) : 0;
}

/// The most rows and columns of d that a job of grouped products computes.
inline constexpr int64_t grouped_rows_of_job = 288, grouped_columns = 256;
/// The words of the depth that it sums at a time.
inline constexpr int64_t grouped_depth = 384;
/// Words of a thread: packed rows, a panel, and sums.
constexpr int64_t grouped_words() {
    return grouped_rows_of_job * (grouped_depth + grouped_columns) + grouped_depth * widest_panel;
}
/// Both products of grouped rows.
inline int64_t grouped_gemm(const Tensor& a, int threads) {
    return a.dtype == Dtype::f64 ? 0 : bytes(Dtype::f32, threads * grouped_words());
}
inline int64_t scaled_grouped_gemm(const Tensor& d, const Tensor& a, const Tensor& b, int threads) {
    const Dtype type = decoded_type(d.dtype);
    return bytes(type, a.count()) + bytes(type, b.count()) +
           grouped_gemm(Tensor(nullptr, type, a.shape), threads);
}
inline int64_t group_bias_backward(const Tensor& dbias, const Tensor& dy) {
    return column_sums(dbias ? dbias.slice_rows(0, 1) : dbias, dy.rows());
}
}  // namespace coeus::workspace
