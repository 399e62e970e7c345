// SPDX-License-Identifier: Apache-2.0
// What matrix products in the manner of BLIS share (Van Zee and van de Geijn, ACM TOMS 41, 2015): copies of
// both operands in the order in which they are read, and the innermost loop, which keeps the sums of 6 rows
// (AVX-512 and NEON: 12) and two vectors of columns in registers. bf16 is converted to f32 in the copies, or
// multiplied in pairs if the processor can. The depth is counted in words (tile.hpp).
#pragma once

#include "../cpu.hpp"
#include "tile.hpp"

#include <cstring>
#include <utility>

namespace coeus::cpu {

template <class A>
constexpr int64_t panel_width = 2 * VectorOf<A>::lanes;
static_assert(panel_width<float> <= workspace::widest_panel);

/// Words that hold `count` elements along the depth; the last one may be padded with zero.
template <class T>
constexpr int64_t words_of(int64_t count) {
    return div_ceil(count, Depth<T>::elements);
}

/// Room for words, which are as large as sums, in the workspace.
template <class T>
Word<T>* alloc_words(Exec& exec, int64_t count) {
    static_assert(sizeof(Word<T>) == sizeof(Acc<T>));
    return static_cast<Word<T>*>(exec.workspace.alloc(dtype_of<Acc<T>>(), {count}).data);
}

/// A matrix in the type of computation; data is null if there is none.
template <class A>
struct Block {
    A* data = nullptr;
    int64_t ld = 0;
    Block at(int64_t row, int64_t column) const { return {data ? data + row * ld + column : nullptr, ld}; }
};

/// Asks for what will be packed next while the micro-kernel computes: one line of the cache after every few
/// steps of its depth. If all lines were asked for at once, they would wait for each other, and the
/// micro-kernel for them.
template <class T>
class Prefetch {
public:
    /// Rows [begin, begin + depth) and columns [first, first + cols) of op(b), over `steps` steps. A depth of
    /// zero or less is nothing.
    Prefetch(const Operand& b, int64_t begin, int64_t depth, int64_t first, int64_t cols, int64_t steps) {
        if (depth <= 0) return;
        row_ = b.tensor.template row<const T>(b.is_transposed ? first : begin) +
               (b.is_transposed ? begin : first);
        ld_ = b.tensor.ld;
        cols_ = b.is_transposed ? depth : cols;
        rows_ = b.is_transposed ? cols : depth;
        every_ = std::max<int64_t>(1, steps / (rows_ * div_ceil(cols_, line)));
    }
    void step() {
        if (++steps_ < every_ || rows_ == 0) return;
        steps_ = 0;
        __builtin_prefetch(row_ + column_, 0, 2);  // to the second-level cache
        column_ += line;
        if (column_ < cols_) return;
        column_ = 0;
        row_ += ld_;
        --rows_;
    }

private:
    static constexpr int64_t line = 64 / int64_t(sizeof(T));  // elements of a line of the cache
    const T* row_ = nullptr;
    int64_t ld_ = 0, cols_ = 0, rows_ = 0, column_ = 0, every_ = 0, steps_ = 0;
};
struct NoPrefetch {
    void step() {}
};

/// out[rows, panel_width] = add + a b over `depth` words. The rows of a are `lda` apart, or packed as columns
/// of rows_in_registers. `add` may be null or out. `ahead` is a Prefetch or NoPrefetch.
template <int rows, bool packed, class A, class W, class P>
inline void micro_kernel(Block<A> out, Block<const A> add, const W* a, int64_t lda, const W* panel,
                         int64_t depth, P& ahead) {
    using V = typename VectorOf<A>::type;
    using Unaligned = typename VectorOf<A>::unaligned;
    typedef W Words __attribute__((vector_size(vector_bytes)));
    constexpr int lanes = VectorOf<A>::lanes;
    V sum[rows][2] = {};
    for (int r = 0; r < rows; ++r)  // prefetches what is needed at the end
        for (int j = 0; j < 2; ++j) {
            if (add.data) __builtin_prefetch(add.data + r * add.ld + j * lanes);
            __builtin_prefetch(out.data + r * out.ld + j * lanes, 1);
        }
    for (int64_t p = 0; p < depth; ++p) {
        ahead.step();
        const Words left = *reinterpret_cast<const Words*>(panel + p * 2 * lanes);
        const Words right = *reinterpret_cast<const Words*>(panel + p * 2 * lanes + lanes);
#pragma GCC unroll 12
        for (int r = 0; r < rows; ++r) {
            const W factor = packed ? a[p * rows_in_registers + r] : a[r * lda + p];
            sum[r][0] = multiply_add(sum[r][0], factor, left);
            sum[r][1] = multiply_add(sum[r][1], factor, right);
        }
    }
    if (add.data) {
#pragma GCC unroll 12
        for (int r = 0; r < rows; ++r) {
            sum[r][0] += *reinterpret_cast<const Unaligned*>(add.data + r * add.ld);
            sum[r][1] += *reinterpret_cast<const Unaligned*>(add.data + r * add.ld + lanes);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; ++r) {
        *reinterpret_cast<Unaligned*>(out.data + r * out.ld) = sum[r][0];
        *reinterpret_cast<Unaligned*>(out.data + r * out.ld + lanes) = sum[r][1];
    }
}

/// The micro-kernel for any number of rows and columns up to its own size. It may read rows of a up to
/// rows_in_registers.
template <bool packed, class A, class W, class P>
inline void micro_block(Block<A> out, Block<const A> add, const W* a, int64_t lda, const W* panel,
                        int64_t depth, int64_t rows, int64_t cols, P&& ahead) {
    constexpr int whole = rows_in_registers, third = whole / 3;
    const auto multiply = [&](Block<A> to, Block<const A> plus, int64_t count) {
        if (count > 2 * third) return micro_kernel<whole, packed>(to, plus, a, lda, panel, depth, ahead);
        if (count > third) return micro_kernel<2 * third, packed>(to, plus, a, lda, panel, depth, ahead);
        micro_kernel<third, packed>(to, plus, a, lda, panel, depth, ahead);
    };
    if (rows % third == 0 && cols == panel_width<A>) return multiply(out, add, rows);
    alignas(64) A tile[whole * panel_width<A>];
    multiply({tile, panel_width<A>}, {}, rows);
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t j = 0; j < cols; ++j)
            out.data[r * out.ld + j] =
                tile[r * panel_width<A> + j] + (add.data ? add.data[r * add.ld + j] : A(0));
}

/// to[j] = sums[j], converted. `sums` is aligned to vectors, and has room for whole vectors.
template <class D, class A>
inline void store_row(D* to, const A* sums, int64_t count) {
    if constexpr (Depth<D>::elements == 2) {  // the processor converts vectors
        using V = typename VectorOf<A>::type;
        constexpr int64_t lanes = VectorOf<A>::lanes;
        for (int64_t j = 0; j < count; j += lanes) {
            uint32_t words[lanes / 2];
            store_pairs(words, *reinterpret_cast<const V*>(sums + j));
            std::memcpy(to + j, words, size_t(std::min(lanes, count - j)) * sizeof(D));
        }
    } else {
#pragma omp simd
        for (int64_t j = 0; j < count; ++j) to[j] = store<D>(sums[j]);
    }
}

/// A vector of words from elements that follow each other along the depth.
template <class T>
[[gnu::always_inline]] inline auto load_words(const T* from) {
    typedef Word<T> Words __attribute__((vector_size(vector_bytes)));
    if constexpr (std::is_same_v<T, Word<T>> || Depth<T>::elements == 2) {
        Words words;
        std::memcpy(&words, from, sizeof(words));
        return words;
    } else {
        return load_vector(from);
    }
}
/// Word p of a row of `count` elements.
template <class T>
inline Word<T> word_at(const T* row, int64_t p, int64_t count) {
    if constexpr (Depth<T>::elements == 1) {
        return load(row[p]);
    } else {
        T pair[2] = {row[2 * p], 2 * p + 1 < count ? row[2 * p + 1] : T(0)};
        return std::bit_cast<uint32_t>(pair);
    }
}

/// (a[first], b[first], a[first + 1], b[first + 1], ...)
template <int first, class V, int... i>
[[gnu::always_inline]] inline V interleave(V a, V b, std::integer_sequence<int, i...>) {
    constexpr int lanes = sizeof...(i);
#if defined(__clang__)
    return __builtin_shufflevector(a, b, (first + i / 2 + i % 2 * lanes)...);
#else
    typedef int Places __attribute__((vector_size(sizeof(V))));
    return __builtin_shuffle(a, b, Places{(first + i / 2 + i % 2 * lanes)...});
#endif
}

/// Transposes as many vectors as they have lanes. Each round interleaves the first half of them with the
/// second.
template <class V, int lanes>
[[gnu::always_inline]] inline void transpose_square(V (&v)[lanes]) {
    constexpr auto all = std::make_integer_sequence<int, lanes>();
#pragma GCC unroll 4
    for (int round = 1; round < lanes; round *= 2) {
        V next[lanes];
#pragma GCC unroll 8
        for (int k = 0; k < lanes / 2; ++k) {
            next[2 * k] = interleave<0>(v[k], v[k + lanes / 2], all);
            next[2 * k + 1] = interleave<lanes / 2>(v[k], v[k + lanes / 2], all);
        }
#pragma GCC unroll 16
        for (int k = 0; k < lanes; ++k) v[k] = next[k];
    }
}

/// Writes words [0, words_of(depth)) of `rows` rows as columns `ld` apart.
template <class T>
void transpose_words(Word<T>* to, int64_t ld, const T* from, int64_t from_ld, int64_t rows, int64_t depth) {
    typedef Word<T> Words __attribute__((vector_size(vector_bytes)));
    typedef Word<T> Unaligned __attribute__((vector_size(vector_bytes), aligned(sizeof(Word<T>))));
    constexpr int lanes = VectorOf<Word<T>>::lanes;
    const int64_t words = words_of<T>(depth), whole = depth / Depth<T>::elements / lanes * lanes;
    int64_t r = 0;
    for (; r + lanes <= rows; r += lanes)
        for (int64_t p = 0; p < whole; p += lanes) {
            Words v[lanes];
#pragma GCC unroll 16
            for (int i = 0; i < lanes; ++i)
                v[i] = load_words<T>(from + (r + i) * from_ld + p * Depth<T>::elements);
            transpose_square(v);
#pragma GCC unroll 16
            for (int i = 0; i < lanes; ++i) *reinterpret_cast<Unaligned*>(to + (p + i) * ld + r) = v[i];
        }
    for (int64_t i = 0; i < rows; ++i)
        for (int64_t p = i < r ? whole : 0; p < words; ++p)
            to[p * ld + i] = word_at(from + i * from_ld, p, depth);
}

/// Writes the words down the columns of rows [begin, begin + depth): to[p][j], for the columns from `first`
/// on.
template <class T>
void words_down(Word<T>* to, int64_t ld, const Tensor& matrix, int64_t begin, int64_t depth, int64_t first,
                int64_t cols) {
    constexpr int64_t elements = Depth<T>::elements;
    for (int64_t p = 0; p < words_of<T>(depth); ++p) {
        const T* row = static_cast<const T*>(matrix.data) + (begin + p * elements) * matrix.ld + first;
        Word<T>* out = to + p * ld;
        if constexpr (elements == 1) {
            if (cols == panel_width<Acc<T>>)
#pragma omp simd
                for (int64_t j = 0; j < panel_width<Acc<T>>; ++j) out[j] = load(row[j]);
            else
                for (int64_t j = 0; j < cols; ++j) out[j] = load(row[j]);
        } else {
            const bool both = p * elements + 1 < depth;
            const T* below = both ? row + matrix.ld : row;
            const uint32_t keep = both ? 0xffffffffu : 0xffffu;
#pragma omp simd
            for (int64_t j = 0; j < cols; ++j)
                out[j] = (uint32_t(row[j].bits) | uint32_t(below[j].bits) << 16) & keep;
        }
    }
}

/// Packs rows [begin, begin + depth) and columns [first, first + cols) of op(b) into a panel
/// [words][panel_width], with zeros beyond the columns.
template <class T>
void pack_panel(Word<T>* panel, const Operand& b, int64_t begin, int64_t depth, int64_t first, int64_t cols) {
    constexpr int64_t width = panel_width<Acc<T>>;
    if (cols < width) std::fill(panel, panel + words_of<T>(depth) * width, Word<T>(0));
    if (b.is_transposed)
        transpose_words<T>(panel, width, b.tensor.template as<const T>() + first * b.tensor.ld + begin,
                           b.tensor.ld, cols, depth);
    else
        words_down<T>(panel, width, b.tensor, begin, depth, first, cols);
}

/// Packs rows [first, first + rows) and columns [begin, begin + depth) of a as blocks of
/// [words][rows_in_registers], in which the micro-kernel reads one place after the other. Rows that complete
/// the last block are zero.
template <class T>
void pack_row_blocks(Word<T>* out, const Tensor& a, int64_t first, int64_t rows, int64_t begin,
                     int64_t depth) {
    typedef Word<T> Words __attribute__((vector_size(vector_bytes)));
    constexpr int block = rows_in_registers, lanes = VectorOf<Word<T>>::lanes;
    const int64_t words = words_of<T>(depth), whole = depth / Depth<T>::elements / lanes * lanes;
    for (int64_t r = 0; r < rows; r += block) {
        const int count = int(std::min<int64_t>(block, rows - r));
        const T* from = static_cast<const T*>(a.data) + (first + r) * a.ld + begin;
        Word<T>* to = out + r * words;
        int64_t p = 0;
        if constexpr (lanes >= block)
            for (; p < whole; p += lanes) {
                Words v[lanes] = {};
#pragma GCC unroll 16
                for (int i = 0; i < block; ++i)
                    if (i < count) v[i] = load_words(from + i * a.ld + p * Depth<T>::elements);
                transpose_square(v);
#pragma GCC unroll 16
                for (int i = 0; i < lanes; ++i)
                    std::memcpy(to + (p + i) * block, &v[i], sizeof(Word<T>) * block);
            }
        for (; p < words; ++p)
            for (int i = 0; i < block; ++i)
                to[p * block + i] = i < count ? word_at(from + i * a.ld, p, depth) : Word<T>(0);
    }
}

/// The same for a transposed a, as blocks of [words][rows_in_registers]. Rows beyond `rows` have any values.
template <class T>
void pack_columns(Word<T>* out, const Tensor& a, int64_t first, int64_t rows, int64_t begin, int64_t depth) {
    constexpr int64_t block = rows_in_registers, elements = Depth<T>::elements, strip = 4 * block;
    alignas(64) Word<T> line[strip] = {};
    const int64_t words = words_of<T>(depth);
    for (int64_t p = 0; p < words; ++p)
        for (int64_t r = 0; r < rows; r += strip) {
            const int64_t count = std::min(strip, rows - r);
            __builtin_prefetch(static_cast<const T*>(a.data) + (begin + (p + 8) * elements) * a.ld + first +
                               r);
            words_down<T>(line, 0, a, begin + p * elements, std::min(elements, depth - p * elements),
                          first + r, count);
            for (int64_t i = 0; i < count; i += block)
                std::memcpy(out + (r + i) * words + p * block, line + i, sizeof(Word<T>) * block);
        }
}

}  // namespace coeus::cpu
