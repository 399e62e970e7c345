// SPDX-License-Identifier: Apache-2.0
// Matrix product by panels.hpp. Blocks of columns of b are copied once into panels as wide as two vectors.
// Jobs of up to 48 rows of a are multiplied with them, a panel at a time. Results are converted to bf16 when
// a job is done, so that it costs hardly more than f32. On AVX2, f32 reaches OpenBLAS's rate
// (bench/kernels.cpp compares them). The order in which the depth is summed depends only on the depth, so the
// bits are the same for any number of threads.
#include "packed_gemm.hpp"

#include "../cpu.hpp"
#include "../workspace.hpp"
#include "panels.hpp"

namespace coeus::cpu {

namespace {

/// The rows of d that one thread computes from the packed columns and depth of b.
template <class T, class D>
struct Job {
    using A = Acc<T>;
    Tensor d;
    Operand a;
    Tensor c;  ///< is added: the caller's c, or d after the first round
    int64_t begin, depth, slab;
    int64_t first_column, cols;
    const Word<T>* panels;
    Word<T>* rows_copy;
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
        const int64_t words = words_of<T>(length);
        const Word<T>* slab_panels = panels + words_of<T>(from) * panel_width<A>;
        if (a.is_transposed) {
            pack_columns<T>(rows_copy, a.tensor, first, rows, begin + from, length);
            sweep<true>(out, add, rows_copy, 0, slab_panels, words, 0, rows);
        } else if constexpr (std::is_same_v<T, Word<T>>) {  // read in place, except the last rows
            const int64_t whole = rows / rows_in_registers * rows_in_registers;
            const A* data = static_cast<const A*>(a.tensor.data) + first * a.tensor.ld + begin + from;
            sweep<false>(out, add, data, a.tensor.ld, slab_panels, words, 0, whole);
            if (whole == rows) return;
            pack_row_blocks<T>(rows_copy, a.tensor, first + whole, rows - whole, begin + from, length);
            sweep<true>(out.at(whole, 0), add.at(whole, 0), rows_copy, 0, slab_panels, words, 0,
                        rows - whole);
        } else {
            pack_row_blocks<T>(rows_copy, a.tensor, first, rows, begin + from, length);
            sweep<true>(out, add, rows_copy, 0, slab_panels, words, 0, rows);
        }
    }
    template <bool packed>
    void sweep(Block<A> out, Block<const A> add, const Word<T>* left, int64_t lda, const Word<T>* slab_panels,
               int64_t words, int64_t from, int64_t to) const {
        for (int64_t j = 0; j < cols; j += panel_width<A>)
            for (int64_t i = from; i < to; i += rows_in_registers)
                micro_block<packed>(out.at(i, j), add.at(i, j), left + i * (packed ? words : lda), lda,
                                    slab_panels + j * words_of<T>(depth), words,
                                    std::min<int64_t>(rows_in_registers, to - i),
                                    std::min(panel_width<A>, cols - j), NoPrefetch());
    }
};

template <class T, class D>
void run(Exec& exec, Tensor d, const Operand& a, const Operand& b, Tensor c, int64_t depth) {
    using A = Acc<T>;
    const int64_t m = d.rows(), n = d.cols(), width = panel_width<A>;
    const auto size = workspace::gemm_blocks(d, a);
    Scope scope(exec.workspace);
    Word<T>* panels = alloc_words<T>(exec, size.columns * size.depth);
    Word<T>* copies = alloc_words<T>(exec, exec.threads * size.rows_copy);
    A* sums = exec.workspace.alloc(dtype_of<A>(), {exec.threads, size.sums}).template as<A>();
    // a job has no more rows than leave one job for each thread
    const int64_t job_rows =
        std::min(workspace::gemm_rows, round_up(div_ceil(m, exec.threads), rows_in_registers));
    const auto round = [&](int64_t first, int64_t cols, int64_t begin, int64_t length) {
#pragma omp parallel num_threads(exec.threads)
        {
#pragma omp for schedule(static)
            for (int64_t j = 0; j < cols; j += width)
                pack_panel<T>(panels + j * words_of<T>(length), b, begin, length, first + j,
                              std::min(width, cols - j));
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
