// SPDX-License-Identifier: Apache-2.0
// Products of small matrices that lie in the nearest cache, for attention: GCC vectors, sums in registers.
// Tiles are padded to whole vectors and to `tile_rows` rows, so there are no remainders.
#pragma once

#include "coeus/kernels/math.hpp"

#include <cstdint>

namespace coeus::cpu {

#ifdef __AVX512F__
inline constexpr int vector_bytes = 64, rows_in_registers = 12;
#else
inline constexpr int vector_bytes = 32, rows_in_registers = 6;
#endif

/// A vector of float or double, and the unsigned integers of the same width.
template <class A>
struct VectorOf {
    static constexpr int lanes = vector_bytes / int(sizeof(A));
    using Int = std::conditional_t<sizeof(A) == 8, uint64_t, uint32_t>;
    typedef A type __attribute__((vector_size(vector_bytes)));
    typedef A unaligned __attribute__((vector_size(vector_bytes), aligned(alignof(A))));
    typedef Int integers __attribute__((vector_size(vector_bytes)));
};

/// Side of the square tiles of attention: whole register blocks and whole vectors of every type.
inline constexpr int64_t tile_side = 48;
static_assert(tile_side % rows_in_registers == 0 && tile_side % (vector_bytes / 4) == 0);

/// c[rows_in_registers][columns vectors] = or += op(a) b over `depth`; op(a)(r, p) = a[r lda + p] or,
/// transposed, a[p lda + r].
template <bool transposed, int columns, class A>
[[gnu::always_inline]] inline void register_block(A* c, int64_t ldc, const A* a, int64_t lda, const A* b,
                                                  int64_t ldb, int64_t depth, bool accumulate) {
    using V = typename VectorOf<A>::type;
    constexpr int lanes = VectorOf<A>::lanes;
    V sum[rows_in_registers][columns] = {};
    for (int64_t p = 0; p < depth; ++p) {
        V right[columns];
        for (int j = 0; j < columns; ++j) right[j] = *reinterpret_cast<const V*>(b + p * ldb + j * lanes);
        for (int r = 0; r < rows_in_registers; ++r) {
            const A left = transposed ? a[p * lda + r] : a[r * lda + p];
            for (int j = 0; j < columns; ++j) sum[r][j] += left * right[j];
        }
    }
    for (int r = 0; r < rows_in_registers; ++r)
        for (int j = 0; j < columns; ++j) {
            V& out = *reinterpret_cast<V*>(c + r * ldc + j * lanes);
            out = accumulate ? out + sum[r][j] : sum[r][j];
        }
}

/// c[rows, cols] = or += op(a) b for tiles: rows a multiple of rows_in_registers, cols of the vector's lanes;
/// b and c aligned to vectors with strides of whole vectors.
template <bool transposed, class A>
[[gnu::noinline]] void tile_product(A* c, int64_t ldc, const A* a, int64_t lda, const A* b, int64_t ldb,
                                    int64_t rows, int64_t cols, int64_t depth, bool accumulate) {
    constexpr int lanes = VectorOf<A>::lanes;
    int64_t j = 0;
    for (; j + 2 * lanes <= cols; j += 2 * lanes)
        for (int64_t i = 0; i < rows; i += rows_in_registers)
            register_block<transposed, 2>(c + i * ldc + j, ldc, a + i * (transposed ? 1 : lda), lda, b + j,
                                          ldb, depth, accumulate);
    for (; j < cols; j += lanes)
        for (int64_t i = 0; i < rows; i += rows_in_registers)
            register_block<transposed, 1>(c + i * ldc + j, ldc, a + i * (transposed ? 1 : lda), lda, b + j,
                                          ldb, depth, accumulate);
}

/// Copies `rows` rows of `cols` elements into a tile of `tile_side` rows of `ld`, times `factor`, zeros
/// elsewhere.
template <class T>
[[gnu::noinline]] void load_tile(Acc<T>* tile, int64_t ld, const T* from, int64_t from_ld, int64_t rows,
                                 int64_t cols, Acc<T> factor = 1) {
    for (int64_t r = 0; r < rows; ++r) {
        __builtin_prefetch(from + (r + tile_side) * from_ld);  // rows are far apart: the next tile's
#pragma omp simd
        for (int64_t j = 0; j < cols; ++j) tile[r * ld + j] = load(from[r * from_ld + j]) * factor;
        for (int64_t j = cols; j < ld; ++j) tile[r * ld + j] = 0;
    }
    std::fill(tile + rows * ld, tile + tile_side * ld, Acc<T>(0));
}

/// The transposed tile: cols rows of tile_side.
template <class A>
[[gnu::noinline]] void transpose_tile(A* to, const A* tile, int64_t ld, int64_t cols) {
    for (int64_t r = 0; r < tile_side; ++r)
        for (int64_t j = 0; j < cols; ++j) to[j * tile_side + r] = tile[r * ld + j];
}

/// Writes `rows` rows of `cols` elements of a tile, times `factor`.
template <class T>
[[gnu::noinline]] void store_tile(T* to, int64_t to_ld, const Acc<T>* tile, int64_t ld, int64_t rows,
                                  int64_t cols, Acc<T> factor) {
    for (int64_t r = 0; r < rows; ++r)
#pragma omp simd
        for (int64_t j = 0; j < cols; ++j) to[r * to_ld + j] = store<T>(tile[r * ld + j] * factor);
}

/// Adds them to what is there.
template <class T>
[[gnu::noinline]] void add_tile(T* to, int64_t to_ld, const Acc<T>* tile, int64_t ld, int64_t rows,
                                int64_t cols, Acc<T> factor) {
    for (int64_t r = 0; r < rows; ++r)
#pragma omp simd
        for (int64_t j = 0; j < cols; ++j)
            to[r * to_ld + j] = store<T>(load(to[r * to_ld + j]) + tile[r * ld + j] * factor);
}

}  // namespace coeus::cpu
