// SPDX-License-Identifier: Apache-2.0
// Products of small matrices in the first-level cache, for attention: GCC vectors, with the sums in
// registers. Tiles are padded to whole vectors and to whole blocks of `rows_in_registers` rows, so there are
// no remainders.
#pragma once

#include "../../math.hpp"
#include "../workspace.hpp"
#include "bf16_pairs.hpp"

#include <bit>
#include <cstdint>
#include <cstring>

namespace coeus::cpu {

using namespace rows;

// two columns of vectors of sums, and the factors, fit in the registers: 32 with AVX-512 and NEON, otherwise
// 16
#if defined(__AVX512F__)
inline constexpr int vector_bytes = 64, rows_in_registers = 12;
#elif defined(__AVX__)
inline constexpr int vector_bytes = 32, rows_in_registers = 6;
#elif defined(__aarch64__)
inline constexpr int vector_bytes = 16, rows_in_registers = 12;
#else
inline constexpr int vector_bytes = 16, rows_in_registers = 6;
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

/// Loads a vector of Acc<T> from elements of type T at any address.
template <class T>
[[gnu::always_inline]] inline auto load_vector(const T* from) {
    using A = Acc<T>;
    using V = typename VectorOf<A>::type;
    if constexpr (std::is_same_v<T, A>) {
        return V(*reinterpret_cast<const typename VectorOf<A>::unaligned*>(from));
    } else {
        typedef uint16_t Halves __attribute__((vector_size(vector_bytes / 2)));
        using I = typename VectorOf<A>::integers;
        Halves halves;
        std::memcpy(&halves, from, sizeof(halves));
        return std::bit_cast<V>(__builtin_convertvector(halves, I) << 16);
    }
}

/// Side of the square tiles of attention: whole register blocks and whole vectors of every type.
inline constexpr int64_t tile_side = 48;
static_assert(tile_side % rows_in_registers == 0 && tile_side % (vector_bytes / 4) == 0);

/// The unit in which a product reads its inner dimension (depth): an element, or a pair of bfloat16 in one
/// 32-bit word. A tile [r][c] is stored with words along its rows, [r][c / elements], if the depth runs along
/// them, or down its columns, [r / elements][c], if the depth runs down them. For single elements both are
/// the same.
template <class T>
struct Depth {
    static constexpr int64_t elements = workspace::attention_depth(dtype_of<T>());
    using Word = std::conditional_t<elements == 2, uint32_t, Acc<T>>;
};
template <class T>
using Word = typename Depth<T>::Word;

template <class V, class A, class R>
[[gnu::always_inline]] inline V multiply_add(V sum, A left, R right) {
    if constexpr (std::is_same_v<A, uint32_t>)
        return add_pair_products(sum, left, right);
    else
        return sum + left * right;
}

/// c[rows_in_registers][columns vectors] = or += op(a) b over `depth` words, where op(a)(r, p) = a[r lda +
/// p], or a[p lda + r] if transposed.
template <bool transposed, int columns, class A, class W>
[[gnu::always_inline]] inline void register_block(A* c, int64_t ldc, const W* a, int64_t lda, const W* b,
                                                  int64_t ldb, int64_t depth, bool accumulate) {
    using V = typename VectorOf<A>::type;
    typedef W Words __attribute__((vector_size(vector_bytes)));
    constexpr int lanes = VectorOf<A>::lanes;
    V sum[rows_in_registers][columns] = {};
    for (int64_t p = 0; p < depth; ++p) {
        Words right[columns];
        for (int j = 0; j < columns; ++j) right[j] = *reinterpret_cast<const Words*>(b + p * ldb + j * lanes);
        for (int r = 0; r < rows_in_registers; ++r) {
            const W left = transposed ? a[p * lda + r] : a[r * lda + p];
            for (int j = 0; j < columns; ++j) sum[r][j] = multiply_add(sum[r][j], left, right[j]);
        }
    }
    for (int r = 0; r < rows_in_registers; ++r)
        for (int j = 0; j < columns; ++j) {
            V& out = *reinterpret_cast<V*>(c + r * ldc + j * lanes);
            out = accumulate ? out + sum[r][j] : sum[r][j];
        }
}

/// c[rows, cols] = or += op(a) b for tiles. rows is a multiple of rows_in_registers, cols a multiple of a
/// vector's lanes, and depth counts words. b and c are aligned to vectors, with strides of whole vectors.
template <bool transposed, class A, class W>
[[gnu::noinline]] void tile_product(A* c, int64_t ldc, const W* a, int64_t lda, const W* b, int64_t ldb,
                                    int64_t rows, int64_t cols, int64_t depth, bool accumulate) {
    static_assert(sizeof(A) == sizeof(W));
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

/// Copies `rows` rows of `cols` elements into a tile of tile_side rows of `ld` words along the rows, with
/// zeros elsewhere.
template <class T>
[[gnu::noinline]] void load_tile(Word<T>* tile, int64_t ld, const T* from, int64_t from_ld, int64_t rows,
                                 int64_t cols) {
    for (int64_t r = 0; r < rows; ++r) {
        __builtin_prefetch(from + (r + tile_side) * from_ld);  // rows are far apart: the next tile's
        Word<T>* to = tile + r * ld;
        if constexpr (Depth<T>::elements == 1) {
#pragma omp simd
            for (int64_t j = 0; j < cols; ++j) to[j] = load(from[r * from_ld + j]);
            std::fill(to + cols, to + ld, Word<T>(0));
        } else {
            std::fill(to + cols / Depth<T>::elements, to + ld, Word<T>(0));
            std::memcpy(to, from + r * from_ld, size_t(cols) * sizeof(T));
        }
    }
    std::fill(tile + rows * ld, tile + tile_side * ld, Word<T>(0));
}

/// Writes the transposed tile: `cols` rows of tile_side words.
template <class W>
[[gnu::noinline]] void transpose_tile(W* to, const W* tile, int64_t ld, int64_t cols) {
    for (int64_t r = 0; r < tile_side; ++r)
        for (int64_t j = 0; j < cols; ++j) to[j * tile_side + r] = tile[r * ld + j];
}

/// Converts a tile with `ld` words along its rows to words down its columns: returns the tile itself, or
/// pairs of rows in `room`.
template <class T>
[[gnu::noinline]] const Word<T>* down_columns([[maybe_unused]] Word<T>* room, const Word<T>* tile,
                                              [[maybe_unused]] int64_t ld) {
    if constexpr (Depth<T>::elements == 1) {
        return tile;
    } else {
        for (int64_t r = 0; r < tile_side; r += 2) {
            const uint32_t *even = tile + r * ld, *odd = even + ld;
            uint32_t* to = room + r * ld;
            for (int64_t j = 0; j < ld; ++j) {
                to[2 * j] = (even[j] & 0xffffu) | (odd[j] << 16);
                to[2 * j + 1] = (even[j] >> 16) | (odd[j] & 0xffff0000u);
            }
        }
        return room;
    }
}

/// Stores results in a tile [tile_side][tile_side] as operands: the vector at (r, j) as words along the row.
template <class T, class V>
[[gnu::always_inline]] inline void put_along(Word<T>* tile, int64_t r, int64_t j, V values) {
    constexpr int64_t elements = Depth<T>::elements;
    Word<T>* to = tile + (r * tile_side + j) / elements;
    if constexpr (elements == 2)
        store_pairs(to, values);
    else
        *reinterpret_cast<V*>(to) = values;
}

/// Stores the vectors at (r, j) and (r + 1, j) as words down the columns. May overwrite a tile of sums whose
/// rows up to r + 1 were read.
template <class T, class V>
[[gnu::always_inline]] inline void put_down(Word<T>* tile, int64_t r, int64_t j, V even, V odd) {
    Word<T>* to = tile + r / Depth<T>::elements * tile_side + j;
    if constexpr (Depth<T>::elements == 2) {
        store_pairs(to, even, odd);
    } else {
        *reinterpret_cast<V*>(to) = even;
        *reinterpret_cast<V*>(to + tile_side) = odd;
    }
}

/// Writes `rows` rows of `cols` elements of a tile, multiplied by `factor`.
template <class T>
[[gnu::noinline]] void store_tile(T* to, int64_t to_ld, const Acc<T>* tile, int64_t ld, int64_t rows,
                                  int64_t cols, Acc<T> factor) {
    for (int64_t r = 0; r < rows; ++r)
#pragma omp simd
        for (int64_t j = 0; j < cols; ++j) to[r * to_ld + j] = store<T>(tile[r * ld + j] * factor);
}

/// Adds them to the destination instead.
template <class T>
[[gnu::noinline]] void add_tile(T* to, int64_t to_ld, const Acc<T>* tile, int64_t ld, int64_t rows,
                                int64_t cols, Acc<T> factor) {
    for (int64_t r = 0; r < rows; ++r)
#pragma omp simd
        for (int64_t j = 0; j < cols; ++j)
            to[r * to_ld + j] = store<T>(load(to[r * to_ld + j]) + tile[r * ld + j] * factor);
}

}  // namespace coeus::cpu
