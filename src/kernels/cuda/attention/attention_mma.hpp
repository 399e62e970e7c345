// SPDX-License-Identifier: Apache-2.0
// Attention on tensor cores for bf16 operands: when it is used, and what its kernels share. A block of four
// warps owns rows (of queries, or of keys when their gradients are summed). It iterates over tiles of the
// other side, which are loaded in pairs. Two pairs are in shared memory, so that one is loaded while the
// other is used. A warp keeps its own rows of scores in registers, from the product that makes them to the
// one that uses them.
#pragma once

#include "../ptx/mma.hpp"
#include "attention_tiles.hpp"

namespace coeus::cuda {

constexpr int mma_warps = 4, mma_threads = mma_warps * warp_size;

/// Columns of a head's keys and queries, and of its values and outputs, including the zeros that pad them.
template <int key_columns, int value_columns = key_columns>
struct HeadWidths {
    static constexpr int keys = key_columns, values = value_columns;
    /// Elements of a row of keys and a row of values in shared memory.
    static constexpr int row_elements = tile_pitch(keys) + tile_pitch(values);
};
using WidestHead = HeadWidths<256>;

/// True if attention can run on tensor cores: bf16, heads of at most 256 columns in whole pieces of 16 bytes,
/// and rows of all operands that begin at multiples of 16 bytes.
inline bool tensor_cores_fit(Dtype type, const AttentionShape& s, std::initializer_list<Tensor> operands) {
    return type == Dtype::bf16 && s.head_dim % piece == 0 && s.value_width() % piece == 0 &&
           widest(s) <= WidestHead::keys && s.scale > 0 && in_pieces(operands);
}

/// Like Cuda::attention; requires tensor_cores_fit.
void attention_mma(Exec& exec, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor document_start,
                   const AttentionShape& s);
/// Like Cuda::attention_backward; requires tensor_cores_fit, and dq must not be the memory of q.
void attention_backward_mma(Exec& exec, Tensor dq, Tensor dk, Tensor dv, Tensor dout,
                            const Statistics& statistics, Tensor q, Tensor k, Tensor v,
                            const AttentionShape& s, bool add_to_dq);

/// Calls f with the narrowest HeadWidths that hold a head.
template <class F>
void dispatch_width(const AttentionShape& s, F&& f) {
    const int64_t width = widest(s);
    if (width <= 32) return f(HeadWidths<32>());
    if (width <= 64) return f(HeadWidths<64>());
    if (width <= 96) return f(HeadWidths<96>());
    if (width <= 128) return f(HeadWidths<128>());
    if (s.head_dim <= 192 && s.value_width() <= 128) return f(HeadWidths<192, 128>());
    f(WidestHead());
}

/// Rows of the tiles that are iterated over, and so columns of a tile of scores. It is limited by
/// most_shared_bytes, which two pairs must fit in, and by the registers for sums.
template <class Widths>
constexpr int passing_rows() {
    return Widths::keys <= 64 ? 64 : Widths::keys <= 128 ? 32 : 16;
}

constexpr int mma_tile_elements(int width, int rows) {
    return rows * tile_pitch(width);
}

/// Starts to copy rows [first, first + rows) of a head to a tile, with zeros from row `end` on and beyond the
/// head's width. Called by all threads of the block.
template <int width, int rows>
__device__ void start_rows(bf16* tile, HeadRows<const bf16> from, int first, int end, int head_dim) {
    constexpr int pieces = width / piece;
    static_assert(rows * pieces % mma_threads == 0);
    // not unrolled: the addresses would take registers that the sums need
    COEUS_NO_UNROLL
    for (int i = 0; i < rows * pieces / mma_threads; ++i) {
        const int at = int(threadIdx.x) + i * mma_threads, row = at / pieces, column = at % pieces * piece;
        const bool is_there = first + row < end && column < head_dim;
        copy_async<16>(tile + row * tile_pitch(width) + column,
                       is_there ? from.row(first + row) + column : from.data, !is_there);
    }
}

/// A pair of tiles that is iterated over: keys and values, or queries and the gradients of their outputs.
template <class Widths>
struct PassingTiles {
    static constexpr int rows = passing_rows<Widths>(), elements = rows * Widths::row_elements;
    bf16 *first, *second;
    __device__ explicit PassingTiles(bf16* memory)
        : first(memory), second(memory + mma_tile_elements(Widths::keys, rows)) {}
    __device__ void start(HeadRows<const bf16> one, HeadRows<const bf16> other, int row, int end,
                          const AttentionShape& s) const {
        start_rows<Widths::keys, rows>(first, one, row, end, int(s.head_dim));
        start_rows<Widths::values, rows>(second, other, row, end, int(s.value_width()));
    }
};

/// A warp's own rows as left operands of products, in shared memory.
template <int width>
class SharedRows {
public:
    __device__ explicit SharedRows(const bf16* rows)
        : rows_(rows + Lane().lane % 16 * tile_pitch(width) + Lane().lane / 16 * piece) {}
    /// Columns [k, k + 16) of the r-th 16 rows.
    __device__ Fragment operand(int r, int k) const {
        return load_matrices(rows_ + r * mma_rows * tile_pitch(width) + k);
    }

private:
    const bf16* rows_;
};

/// The same rows in registers: no product loads them again.
template <int width, int row_tiles>
class KeptRows {
public:
    __device__ explicit KeptRows(const bf16* from) {
        const SharedRows<width> rows(from);
        COEUS_UNROLL
        for (int r = 0; r < row_tiles; ++r) {
            COEUS_UNROLL
            for (int k = 0; k < width; k += 16) operands_[r][k / 16] = rows.operand(r, k);
        }
    }
    __device__ const Fragment& operand(int r, int k) const { return operands_[r][k / 16]; }

private:
    Fragment operands_[row_tiles][width / 16];
};

/// scores = own rows (SharedRows or KeptRows) times the transposed rows of another tile.
template <int width, class OwnRows, int row_tiles, int column_tiles>
__device__ void multiply_rows(Sums (&scores)[row_tiles][column_tiles], const OwnRows& own,
                              const bf16* other) {
    constexpr int pitch = tile_pitch(width);
    const int lane = Lane().lane;
    other += (lane % 8 + lane / 16 * 8) * pitch + lane / 8 % 2 * piece;
    COEUS_UNROLL
    for (int r = 0; r < row_tiles; ++r) {
        COEUS_UNROLL
        for (int c = 0; c < column_tiles; ++c) scores[r][c] = {};
    }
    COEUS_UNROLL
    for (int k = 0; k < width; k += 16) {
        Fragment a[row_tiles];
        COEUS_UNROLL
        for (int r = 0; r < row_tiles; ++r) a[r] = own.operand(r, k);
        COEUS_UNROLL
        for (int c = 0; c < column_tiles; c += 2) {
            const Fragment b = load_matrices(other + c * 8 * pitch + k);
            COEUS_UNROLL
            for (int r = 0; r < row_tiles; ++r) {
                multiply_add(scores[r][c], a[r], b.parts[0], b.parts[1]);
                multiply_add(scores[r][c + 1], a[r], b.parts[2], b.parts[3]);
            }
        }
    }
}

/// Rounds sums to an operand. The elements that a lane has of two sums are those that it must have of a 16x16
/// operand.
__device__ inline Fragment rounded(const Sums& left, const Sums& right) {
    return {{pair_of(left.values[0], left.values[1]), pair_of(left.values[2], left.values[3]),
             pair_of(right.values[0], right.values[1]), pair_of(right.values[2], right.values[3])}};
}

/// sums += weights, rounded to bf16, times the rows of a tile, or times as many columns from `rows` on as
/// there are sums.
template <int width, int row_tiles, int sum_tiles, int column_tiles>
__device__ void add_weighted_tile(Sums (&sums)[row_tiles][sum_tiles],
                                  const Sums (&weights)[row_tiles][column_tiles], const bf16* rows) {
    constexpr int pitch = tile_pitch(width);
    const int lane = Lane().lane;
    rows += lane % 16 * pitch + lane / 16 * piece;
    COEUS_UNROLL
    for (int k = 0; k < column_tiles; k += 2) {
        Fragment a[row_tiles];
        COEUS_UNROLL
        for (int r = 0; r < row_tiles; ++r) a[r] = rounded(weights[r][k], weights[r][k + 1]);
        COEUS_UNROLL
        for (int c = 0; c < sum_tiles; c += 2) {
            const Fragment b = load_matrices<true>(rows + k * 8 * pitch + c * 8);
            COEUS_UNROLL
            for (int r = 0; r < row_tiles; ++r) {
                multiply_add(sums[r][c], a[r], b.parts[0], b.parts[1]);
                multiply_add(sums[r][c + 1], a[r], b.parts[2], b.parts[3]);
            }
        }
    }
}

/// Stores a lane's part of the first `columns` of a row of sums, multiplied by a factor. `half` is 0, or 1
/// for the row 8 further down.
template <int sum_tiles, class O>
__device__ void put_sums(O* to, const Sums (&sums)[sum_tiles], int half, float factor, int64_t columns,
                         bool accumulate) {
    COEUS_UNROLL
    for (int c = 0; c < sum_tiles; ++c)
        if (const int column = c * 8 + Lane().column; column < columns)
            put_pair(to + column, factor * sums[c].values[2 * half], factor * sums[c].values[2 * half + 1],
                     accumulate);
}

/// The rows [begin, end).
struct RowRange {
    int begin, end;
    __device__ bool meets(int first, int count) const { return first < end && first + count > begin; }
    __device__ bool contains(int first, int count) const { return first >= begin && first + count <= end; }
};
/// Rows of the other side: `some` are those that at least one of certain rows sees or is seen by, `all` those
/// for which this is true of all of these rows.
struct Reach {
    RowRange some, all;
};

/// The keys that a query sees; none for a query beyond the last.
__device__ inline RowRange seen_by(const AttentionShape& s, const int32_t* document_start, int query) {
    if (query >= s.sequence) return {0, 0};
    const SeenKeys seen = seen_keys(s, document_start, query);
    return {int(seen.start), int(seen.stop)};
}

/// The keys that `count` queries from `first` on see. Queries beyond the last are ignored. With causal and
/// document masks, both ends of a query's range only increase from one query to the next.
__device__ inline Reach reach_of_queries(const AttentionShape& s, const int32_t* document_start, int first,
                                         int count) {
    const int queries = int(s.sequence), end = first + count < queries ? first + count : queries;
    if (first >= end) return {{0, 0}, {0, 0}};
    const RowRange least = seen_by(s, document_start, first), most = seen_by(s, document_start, end - 1);
    return {{least.begin, most.end}, {most.begin, least.end}};
}

/// The grid of attention_blocks.
inline Grid mma_grid(int64_t rows, int block_rows, int64_t heads, const AttentionShape& s, int64_t bytes) {
    return {attention_blocks(rows, block_rows, heads, s), mma_threads, size_t(bytes)};
}

}  // namespace coeus::cuda
