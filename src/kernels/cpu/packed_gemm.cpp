// SPDX-License-Identifier: Apache-2.0
// Matrix product in the manner of BLIS (Van Zee and van de Geijn, ACM TOMS 41, 2015). Blocks of columns of b
// are copied once into panels as wide as two vectors. Jobs of up to 48 rows of a are multiplied with them, a
// panel at a time, with the sums of 6 rows (AVX-512 and NEON: 12) in registers. bf16 is converted to f32 in
// the copies, and back when a job is done, so that it costs hardly more than f32. On AVX2, f32 reaches
// OpenBLAS's rate (bench/kernels.cpp compares them). The order in which the depth is summed depends only on
// the depth, so the bits are the same for any number of threads.
#include "packed_gemm.hpp"

#include "cpu.hpp"
#include "tile.hpp"
#include "workspace.hpp"

#include <cstring>

namespace coeus::cpu {

namespace {

template <class A>
constexpr int64_t panel_width = 2 * VectorOf<A>::lanes;

/// out[rows_in_registers, panel_width] = add + a b over `depth`. The rows of a are `lda` apart, or packed as
/// columns of rows_in_registers. `add` may be null or out.
template <bool packed, class A>
inline void micro_kernel(A* out, int64_t ldo, const A* add, int64_t ldadd, const A* a, int64_t lda,
                         const A* panel, int64_t depth) {
    using V = typename VectorOf<A>::type;
    using Unaligned = typename VectorOf<A>::unaligned;
    constexpr int lanes = VectorOf<A>::lanes, rows = rows_in_registers;
    V sum[rows][2] = {};
    for (int r = 0; r < rows; ++r) {  // prefetches what is needed at the end
        if (add) __builtin_prefetch(add + r * ldadd);
        __builtin_prefetch(out + r * ldo, 1);
    }
    for (int64_t p = 0; p < depth; ++p) {
        const V left = *reinterpret_cast<const V*>(panel + p * 2 * lanes);
        const V right = *reinterpret_cast<const V*>(panel + p * 2 * lanes + lanes);
#pragma GCC unroll 12
        for (int r = 0; r < rows; ++r) {
            const A factor = packed ? a[p * rows + r] : a[r * lda + p];
            sum[r][0] += factor * left;
            sum[r][1] += factor * right;
        }
    }
    for (int r = 0; r < rows; ++r)
        for (int j = 0; j < 2; ++j) {
            if (add) sum[r][j] += *reinterpret_cast<const Unaligned*>(add + r * ldadd + j * lanes);
            *reinterpret_cast<Unaligned*>(out + r * ldo + j * lanes) = sum[r][j];
        }
}

/// A matrix in the type of computation; data is null if there is none.
template <class A>
struct Block {
    A* data = nullptr;
    int64_t ld = 0;
    Block at(int64_t row, int64_t column) const { return {data ? data + row * ld + column : nullptr, ld}; }
};

/// The micro-kernel for any number of rows and columns up to its own size.
template <bool packed, class A>
inline void micro_block(Block<A> out, Block<const A> add, const A* a, int64_t lda, const A* panel,
                        int64_t depth, int64_t rows, int64_t cols) {
    if (rows == rows_in_registers && cols == panel_width<A>)
        return micro_kernel<packed>(out.data, out.ld, add.data, add.ld, a, lda, panel, depth);
    alignas(64) A tile[rows_in_registers * panel_width<A>];
    micro_kernel<packed, A>(tile, panel_width<A>, nullptr, 0, a, lda, panel, depth);
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t j = 0; j < cols; ++j)
            out.data[r * out.ld + j] =
                tile[r * panel_width<A> + j] + (add.data ? add.data[r * add.ld + j] : A(0));
}

/// Packs rows [begin, begin + depth) and columns [first, first + cols) of op(b) into a panel
/// [depth][panel_width], with zeros beyond the columns.
template <class T>
void pack_panel(Acc<T>* panel, const Operand& b, int64_t begin, int64_t depth, int64_t first, int64_t cols) {
    using A = Acc<T>;
    constexpr int64_t width = panel_width<A>, strip = 64;
    Tensor matrix = b.tensor;
    const T* data = matrix.as<const T>();
    if (cols < width) std::fill(panel, panel + depth * width, A(0));
    if (!b.is_transposed) {
        for (int64_t p = 0; p < depth; ++p) {
            const T* row = data + (begin + p) * matrix.ld + first;
            A* out = panel + p * width;
            if (cols == width)
#pragma omp simd
                for (int64_t j = 0; j < width; ++j) out[j] = load(row[j]);
            else
                for (int64_t j = 0; j < cols; ++j) out[j] = load(row[j]);
        }
        return;
    }
    for (int64_t start = 0; start < depth; start += strip)  // in strips that stay in the first-level cache
        for (int64_t j = 0; j < cols; ++j) {
            const T* row = data + (first + j) * matrix.ld + begin;
            for (int64_t p = start; p < std::min(depth, start + strip); ++p)
                panel[p * width + j] = load(row[p]);
        }
}

/// Packs rows [first, first + rows) and columns [begin, begin + depth) of a as rows that are `depth` apart.
template <class T>
void pack_rows(Acc<T>* out, const Tensor& a, int64_t first, int64_t rows, int64_t begin, int64_t depth) {
    const T* data = static_cast<const T*>(a.data) + first * a.ld + begin;
    for (int64_t r = 0; r < rows; ++r)
#pragma omp simd
        for (int64_t p = 0; p < depth; ++p) out[r * depth + p] = load(data[r * a.ld + p]);
    std::fill(out + rows * depth, out + round_up(rows, rows_in_registers) * depth, Acc<T>(0));
}

/// The same for a transposed a, as blocks of [depth][rows_in_registers].
template <class T>
void pack_columns(Acc<T>* out, const Tensor& a, int64_t first, int64_t rows, int64_t begin, int64_t depth) {
    using A = Acc<T>;
    constexpr int64_t block = rows_in_registers;
    alignas(64) A line[workspace::gemm_rows] = {};
    for (int64_t p = 0; p < depth; ++p) {
        const T* row = static_cast<const T*>(a.data) + (begin + p) * a.ld + first;
        for (int64_t r = 0; r < rows; r += 64 / int64_t(sizeof(T))) __builtin_prefetch(row + 16 * a.ld + r);
#pragma omp simd
        for (int64_t r = 0; r < rows; ++r) line[r] = load(row[r]);
        for (int64_t r = 0; r < rows; r += block)
            std::memcpy(out + r * depth + p * block, line + r, sizeof(A) * block);
    }
}

/// The rows of d that one thread computes from the packed columns and depth of b.
template <class T, class D>
struct Job {
    using A = Acc<T>;
    Tensor d;
    Operand a;
    Tensor c;  ///< is added: the caller's c, or d after the first round
    int64_t begin, depth, slab;
    int64_t first_column, cols;
    const A* panels;
    A* rows_copy;
    A* sums;  ///< used if d is not of type A

    void run(int64_t first, int64_t rows) const {
        const Block<D> target = {d.as<D>() + first * d.ld + first_column, d.ld};
        Block<A> out;
        Block<const A> add;
        if constexpr (std::is_same_v<A, D>) {
            out = {target.data, target.ld};
            if (c) add = {c.as<const A>() + first * c.ld + first_column, c.ld};
        } else {
            out = {sums, cols};
        }
        for (int64_t from = 0; from < depth; from += slab) {
            multiply(out, add, first, rows, from, std::min(slab, depth - from));
            add = {out.data, out.ld};
        }
        if constexpr (!std::is_same_v<A, D>) {
            const D* residual = c ? c.as<const D>() + first * c.ld + first_column : nullptr;
            for (int64_t r = 0; r < rows; ++r)
#pragma omp simd
                for (int64_t j = 0; j < cols; ++j) {
                    const A plus = residual ? A(load(residual[r * c.ld + j])) : A(0);
                    target.data[r * target.ld + j] = store<D>(sums[r * cols + j] + plus);
                }
        }
    }

private:
    void multiply(Block<A> out, Block<const A> add, int64_t first, int64_t rows, int64_t from,
                  int64_t length) const {
        const A* slab_panels = panels + from * panel_width<A>;
        if (a.is_transposed) {
            pack_columns<T>(rows_copy, a.tensor, first, rows, begin + from, length);
            sweep<true>(out, add, rows_copy, 0, slab_panels, length, 0, rows);
        } else if constexpr (std::is_same_v<T, A>) {  // read in place, except the last rows
            const int64_t whole = rows / rows_in_registers * rows_in_registers;
            const A* data = static_cast<const A*>(a.tensor.data) + first * a.tensor.ld + begin + from;
            sweep<false>(out, add, data, a.tensor.ld, slab_panels, length, 0, whole);
            if (whole == rows) return;
            pack_rows<T>(rows_copy, a.tensor, first + whole, rows - whole, begin + from, length);
            sweep<false>(out.at(whole, 0), add.at(whole, 0), rows_copy, length, slab_panels, length, 0,
                         rows - whole);
        } else {
            pack_rows<T>(rows_copy, a.tensor, first, rows, begin + from, length);
            sweep<false>(out, add, rows_copy, length, slab_panels, length, 0, rows);
        }
    }
    template <bool packed>
    void sweep(Block<A> out, Block<const A> add, const A* left, int64_t lda, const A* slab_panels,
               int64_t length, int64_t from, int64_t to) const {
        for (int64_t j = 0; j < cols; j += panel_width<A>)
            for (int64_t i = from; i < to; i += rows_in_registers)
                micro_block<packed>(out.at(i, j), add.at(i, j), left + i * (packed ? length : lda), lda,
                                    slab_panels + j * depth, length,
                                    std::min<int64_t>(rows_in_registers, to - i),
                                    std::min(panel_width<A>, cols - j));
    }
};

template <class T, class D>
void run(Exec& exec, Tensor d, const Operand& a, const Operand& b, Tensor c, int64_t depth) {
    using A = Acc<T>;
    const int64_t m = d.rows(), n = d.cols(), width = panel_width<A>;
    const auto size = workspace::gemm_blocks(d, a);
    Scope scope(exec.workspace);
    A* panels = exec.workspace.alloc(dtype_of<A>(), {size.columns * size.depth}).template as<A>();
    A* copies = exec.workspace.alloc(dtype_of<A>(), {exec.threads, size.rows_copy}).template as<A>();
    A* sums = exec.workspace.alloc(dtype_of<A>(), {exec.threads, size.sums}).template as<A>();
    // a job has no more rows than leave one job for each thread
    const int64_t job_rows =
        std::min(workspace::gemm_rows, round_up(div_ceil(m, exec.threads), rows_in_registers));
    const auto round = [&](int64_t first, int64_t cols, int64_t begin, int64_t length) {
#pragma omp parallel num_threads(exec.threads)
        {
#pragma omp for schedule(static)
            for (int64_t j = 0; j < cols; j += width)
                pack_panel<T>(panels + j * length, b, begin, length, first + j, std::min(width, cols - j));
            const Job<T, D> job = {d,
                                   a,
                                   begin == 0 ? c : d,
                                   begin,
                                   length,
                                   size.slab,
                                   first,
                                   cols,
                                   panels,
                                   copies + thread_index() * size.rows_copy,
                                   sums + thread_index() * size.sums};
#pragma omp for schedule(dynamic)
            for (int64_t i = 0; i < m; i += job_rows) job.run(i, std::min(job_rows, m - i));
        }
    };
    for (int64_t first = 0; first < n; first += size.columns)
        for (int64_t begin = 0; begin < depth; begin += size.depth)
            round(first, std::min(size.columns, n - first), begin, std::min(size.depth, depth - begin));
}

}  // namespace

void packed_gemm(Exec& exec, Tensor d, const Operand& a, const Operand& b, Tensor c, int64_t depth) {
    if (a.tensor.dtype == Dtype::f32)
        run<float, float>(exec, d, a, b, c, depth);
    else if (d.dtype == Dtype::f32)
        run<bf16, float>(exec, d, a, b, c, depth);
    else
        run<bf16, bf16>(exec, d, a, b, c, depth);
}

}  // namespace coeus::cpu
