// SPDX-License-Identifier: Apache-2.0
// Shared by the forward and backward of attention on CUDA. Tiles have as many queries as keys, and are in
// shared memory as float with an odd row length. Eight neighbouring threads of a block share a row of scores.
#pragma once

#include "../../rows/matrix.hpp"
#include "../launch.hpp"
#include "../rows/team.hpp"

namespace coeus::cuda {

using namespace rows;

constexpr int row_threads = 8;
/// Most shared memory that a block may have on every GPU from sm_80 on (sm_86, sm_89 and sm_120 have no
/// more).
constexpr int64_t most_shared_bytes = 99 << 10;

/// Rows of a tile if each thread has this many columns of a head: four tiles of the widest head must fit.
constexpr int tile_side(int columns) {
    return columns * row_threads <= 128 ? 32 : 16;
}
constexpr int attention_threads(int columns) {
    return tile_side(columns) * row_threads;
}
constexpr int scores_per_thread(int columns) {
    return tile_side(columns) / row_threads;
}
constexpr double log2_e = 1.4426950408889634;

/// The rows of one sequence in the columns of one head.
template <class T>
struct HeadRows {
    T* data;
    int64_t ld;
    COEUS_HD T* row(int64_t i) const { return data + i * ld; }
};
/// All heads and sequences of an operand.
template <class T>
struct Heads {
    T* data;
    int64_t ld, rows;  // rows of one sequence
    COEUS_HD HeadRows<T> of(int64_t sequence, int64_t head, int64_t width) const {
        return {data + sequence * rows * ld + head * width, ld};
    }
};
template <class T>
Heads<T> heads_of(const Tensor& t, const AttentionShape& s) {
    return {t.as<T>(), t.ld, t.rows() / s.batch};
}

/// The document starts of all sequences; `start` is null if there are none.
struct Documents {
    const int32_t* start;
    int64_t whole;  // tokens of a whole sequence
    COEUS_HD const int32_t* of(int64_t sequence) const { return start ? start + sequence * whole : nullptr; }
};
inline Documents documents_of(const Tensor& document_start, const AttentionShape& s) {
    if (!document_start) return {nullptr, 0};
    return {document_start.as<const int32_t>(), document_start.count() / s.batch};
}

/// Statistics of the queries for the backward: log of the sum of exp of the scores, and rowsum(dout out),
/// both [H, T].
struct Statistics {
    const float *lse, *delta;
    Documents documents;
};

/// The keys [start, stop) that a query sees.
struct SeenKeys {
    int64_t start, stop;
};
__device__ inline SeenKeys seen_keys(const AttentionShape& s, const int32_t* document_start, int64_t query) {
    const SequencePart keys = s.keys();
    const int64_t index = s.queries().index(query);
    return {keys.below(first_key(s, document_start, index)), keys.below(index + 1)};
}

/// Blocks for `block_rows` rows each of all heads and sequences.
inline dim3 attention_blocks(int64_t rows, int block_rows, int64_t heads, const AttentionShape& s) {
    return dim3(blocks_for(heads), blocks_for(s.batch), blocks_for(div_ceil(rows, block_rows)));
}
/// What a block of attention_blocks computes: a part of the rows of a head and sequence. Blocks start in the
/// order of their numbers: the first parts of all heads and sequences, then the second. With a causal mask,
/// the first keys and the last queries have the most work. They start first, so that little is left at the
/// end.
__device__ inline int64_t block_head() {
    return blockIdx.x;
}
__device__ inline int64_t block_sequence() {
    return blockIdx.y;
}
__device__ inline int part_from_first() {
    return int(blockIdx.z);
}
__device__ inline int part_from_last() {
    return int(gridDim.z - 1 - blockIdx.z);
}

/// The larger width of keys and values.
COEUS_HD constexpr int64_t widest(const AttentionShape& s) {
    return s.head_dim > s.value_width() ? s.head_dim : s.value_width();
}
/// Floats from one row of a tile to the next: an odd number, so that threads that read a column have no bank
/// conflicts.
COEUS_HD constexpr int64_t tile_width(const AttentionShape& s) {
    return widest(s) | 1;
}

/// Sizes in elements for a block whose threads have this many columns each: a tile of rows, and a square with
/// one number for each query and key.
struct TileSizes {
    int64_t rows, square;
    COEUS_HD constexpr TileSizes(int columns, const AttentionShape& s)
        : rows(tile_side(columns) * tile_width(s)), square(tile_side(columns) * tile_side(columns)) {}
};
inline size_t tiles_bytes(int columns, const AttentionShape& s, int tiles, int squares) {
    const TileSizes sizes(columns, s);
    return size_t(tiles * sizes.rows + squares * sizes.square) * sizeof(float);
}

/// Loads a tile with rows from `first` on, `cols` wide and `width` apart; zeros beyond `rows`. Called by all
/// threads of the block.
template <class T, int columns>
__device__ void load_tile(float* tile, int64_t width, HeadRows<const T> from, int64_t first, int64_t rows,
                          int64_t cols) {
    for (int64_t i = threadIdx.x; i < tile_side(columns) * cols; i += attention_threads(columns)) {
        const int64_t r = i / cols, j = i % cols;
        tile[r * width + j] = first + r < rows ? load(from.row(first + r)[j]) : 0.0f;
    }
}

__device__ inline float dot(const float* a, const float* b, int64_t n) {
    float sum = 0;
    for (int64_t j = 0; j < n; ++j) sum += a[j] * b[j];
    return sum;
}

/// sums[i] += sum over c of weights[c] rows[c][column], for this thread's columns: lane, lane + 8, ...
template <int columns>
__device__ void add_weighted_rows(float (&sums)[columns], const float* weights, const float* rows,
                                  int64_t width, int64_t cols, int lane) {
    for (int c = 0; c < tile_side(columns); ++c) {
        COEUS_UNROLL
        for (int i = 0; i < columns; ++i) {
            const int64_t column = lane + int64_t(i) * row_threads;
            if (column < cols) sums[i] += weights[c] * rows[c * width + column];
        }
    }
}

/// Sum, or maximum, over the 8 threads of a row.
__device__ inline float row_sum(float value) {
    for (int distance = row_threads / 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(whole_warp, value, distance);
    return value;
}
__device__ inline float row_largest(float value) {
    for (int distance = row_threads / 2; distance > 0; distance /= 2) {
        const float other = __shfl_xor_sync(whole_warp, value, distance);
        value = other > value ? other : value;
    }
    return value;
}

/// Calls f with an integral constant: the columns of a head for each thread.
template <class F>
void dispatch_columns(const AttentionShape& s, F&& f) {
    const int64_t head_dim = widest(s);
    require(head_dim <= 256, "attention on CUDA: heads are at most 256 wide");
    if (head_dim <= 64) return f(std::integral_constant<int, 64 / row_threads>());
    if (head_dim <= 128) return f(std::integral_constant<int, 128 / row_threads>());
    f(std::integral_constant<int, 256 / row_threads>());
}

/// Calls f with a value of the type of an operand, which is T or float.
template <class T, class F>
void dispatch_out(Dtype type, F&& f) {
    if (type == dtype_of<T>()) return f(T());
    require(type == Dtype::f32, "attention: a result is neither of the type nor of acc");
    f(float());
}

inline void check_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& lse,
                            const Tensor& document_start, const AttentionShape& s) {
    const int64_t tokens = s.batch * s.sequence, keys = s.batch * s.keys().count;
    require(s.heads > 0 && s.kv_heads > 0 && s.heads % s.kv_heads == 0,
            "attention: query heads are not a multiple of key/value heads");
    require(s.queries().count == s.sequence && q.rows() == tokens && q.cols() == s.heads * s.head_dim &&
                k.rows() == keys && k.cols() == s.kv_heads * s.head_dim && v.rows() == keys &&
                v.cols() == s.kv_heads * s.value_width(),
            "attention: operands do not have the shape given");
    require(lse.rows() == s.heads && lse.cols() == tokens && lse.dense(), "attention: lse is not [H, T]");
    require(has_known_masks(s, bool(document_start)),
            "attention: full attention has no windows, chunks or documents");
}

}  // namespace coeus::cuda
