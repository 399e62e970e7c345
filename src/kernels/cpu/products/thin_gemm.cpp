// SPDX-License-Identifier: Apache-2.0
// Matrix product for a few rows of a, as in generation token by token. b, a layer's weight, is read once, row
// by row in place, and reading it takes the time. Each sum runs over the lanes of one vector and ends with
// the same few additions, whatever the number of rows, so the bits of a row do not depend on that number.
#include "thin_gemm.hpp"

#include "../cpu.hpp"
#include "tile.hpp"

#include <cstring>

namespace coeus::cpu {

namespace {

/// Loads the last `count` elements, followed by zeros.
template <class T>
[[gnu::always_inline]] inline auto load_rest(const T* from, int64_t count) {
    T whole[VectorOf<Acc<T>>::lanes] = {};
    std::memcpy(whole, from, size_t(count) * sizeof(T));
    return load_vector(whole);
}

/// Dot products of `rows` rows of a with `columns` rows of b.
template <int rows, int columns, class T>
[[gnu::always_inline]] inline void dot_block(Acc<T> (&out)[rows][columns], const T* a, int64_t lda,
                                             const T* b, int64_t ldb, int64_t depth) {
    using V = typename VectorOf<Acc<T>>::type;
    constexpr int lanes = VectorOf<Acc<T>>::lanes;
    V sum[rows][columns] = {};
    const auto add = [&](int64_t p, const auto& load_at) {
        V right[columns];
        for (int j = 0; j < columns; ++j) right[j] = load_at(b + j * ldb + p);
        for (int r = 0; r < rows; ++r) {
            const V left = load_at(a + r * lda + p);
            for (int j = 0; j < columns; ++j) sum[r][j] += left * right[j];
        }
    };
    int64_t p = 0;
    for (; p + lanes <= depth; p += lanes) add(p, [](const T* at) { return load_vector(at); });
    if (p < depth) add(p, [=](const T* at) { return load_rest(at, depth - p); });
    for (int r = 0; r < rows; ++r)
        for (int j = 0; j < columns; ++j) {
            for (int width = lanes / 2; width > 0; width /= 2)
                for (int i = 0; i < width; ++i) sum[r][j][i] += sum[r][j][i + width];
            out[r][j] = sum[r][j][0];
        }
}

template <class T, class D>
struct ThinProduct {
    Tensor d, a, b, c;

    /// Computes columns [first, last) of all rows.
    void run(int64_t first, int64_t last) const {
        int64_t j = first;
        for (; j + 2 <= last; j += 2) all_rows<2>(j);
        if (j < last) all_rows<1>(j);
    }

private:
    template <int columns>
    void all_rows(int64_t j) const {
        int64_t r = 0;
        for (; r + 4 <= d.rows(); r += 4) some_rows<4, columns>(r, j);
        for (; r < d.rows(); ++r) some_rows<1, columns>(r, j);
    }
    template <int rows, int columns>
    void some_rows(int64_t r, int64_t j) const {
        Acc<T> sums[rows][columns];
        dot_block<rows, columns, T>(sums, a.row<const T>(r), a.ld, b.row<const T>(j), b.ld, a.cols());
        for (int i = 0; i < rows; ++i)
            for (int k = 0; k < columns; ++k) {
                const auto plus = c ? Acc<T>(load(c.row<const D>(r + i)[j + k])) : Acc<T>(0);
                d.row<D>(r + i)[j + k] = store<D>(sums[i][k] + plus);
            }
    }
};

}  // namespace

void thin_gemm_columns(const Tensor& d, const Tensor& a, const Tensor& b, const Tensor& c, int64_t first,
                       int64_t last) {
    dispatch(a.dtype, [&]<class T>(T) {
        if (d.dtype == a.dtype)
            ThinProduct<T, T>{d, a, b, c}.run(first, last);
        else
            ThinProduct<T, Acc<T>>{d, a, b, c}.run(first, last);
    });
}

void thin_gemm(Exec& exec, Tensor d, Tensor a, Tensor b, Tensor c) {
    // a block of 64 KiB of b makes another thread worthwhile
    const int64_t row_bytes = b.cols() * size_of(b.dtype);
    const int64_t block = round_up(std::max<int64_t>(1, (int64_t(64) << 10) / row_bytes), 2);
    parallel_blocks(exec, b.rows(), block, [&](int64_t, int64_t first, int64_t last) {
        thin_gemm_columns(d, a, b, c, first, last);
    });
}

}  // namespace coeus::cpu
