// SPDX-License-Identifier: Apache-2.0
// Products of rows that are grouped by expert, each group with its own matrix, by panels.hpp. A job computes
// a block of one group's product and packs what it reads of both operands, so threads share nothing. The
// number of an expert's rows changes with each step, and every number is as fast. (oneDNN compiles and keeps
// a kernel for each number that occurs.) The order of sums depends only on the depth, with one exception:
// a group of few rows is multiplied by thin_gemm.
#include "../cpu.hpp"
#include "../products/panels.hpp"
#include "../products/thin_gemm.hpp"
#include "../workspace.hpp"
#include "group_rows.hpp"

namespace coeus::cpu {

namespace {

using workspace::grouped_columns, workspace::grouped_depth, workspace::grouped_rows_of_job;

Tensor matrix_of(const Tensor& all, const Groups& groups, int64_t g) {
    const int64_t rows = all.rows() / groups.number();
    return all.slice_rows(g * rows, rows);
}

/// A thread's scratch memory.
template <class T>
struct JobMemory {
    Word<T>*left, *panel;
    Acc<T>* sums;
    JobMemory(Word<T>* all, int64_t thread) {
        left = all + thread * workspace::grouped_words();
        panel = left + grouped_rows_of_job * grouped_depth;
        sums = reinterpret_cast<Acc<T>*>(panel + grouped_depth * panel_width<Acc<T>>);
    }
};

template <class A, class D>
void add_to(A* sums, const D* row, int64_t count) {
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) sums[j] += load(row[j]);
}

/// d = or += op(a) op(b) for a block d of a product: its rows are those of op(a) from `first` on, and its
/// columns those of op(b) from `column` on.
template <class T, class D>
void run_job(const JobMemory<T>& memory, const Tensor& d, const Operand& a, int64_t first, const Operand& b,
             int64_t column, bool accumulate) {
    using A = Acc<T>;
    const int64_t rows = d.rows(), cols = d.cols();
    const int64_t depth = a.is_transposed ? a.tensor.rows() : a.tensor.cols();
    const int64_t slabs = div_ceil(words_of<T>(depth), grouped_depth);
    const int64_t slab = div_ceil(words_of<T>(depth), slabs) * Depth<T>::elements;
    Block<A> out = {memory.sums, grouped_columns};
    Block<const A> add;
    if constexpr (std::is_same_v<A, D>) {
        out = {d.as<A>(), d.ld};
        if (accumulate) add = {d.as<const A>(), d.ld};
    }
    for (int64_t from = 0; from < depth; from += slab) {
        const int64_t length = std::min(slab, depth - from), words = words_of<T>(length);
        if (a.is_transposed)
            pack_columns<T>(memory.left, a.tensor, first, rows, from, length);
        else
            pack_row_blocks<T>(memory.left, a.tensor, first, rows, from, length);
        for (int64_t j = 0; j < cols; j += panel_width<A>) {
            const int64_t width = std::min(panel_width<A>, cols - j);
            pack_panel<T>(memory.panel, b, from, length, column + j, width);
            // After this panel comes the next one of the slab, or the first one of the next slab.
            const bool last = j + width == cols;
            const int64_t next = last ? 0 : j + width, begin = last ? from + slab : from;
            Prefetch<T> ahead(b, begin, std::min(slab, depth - begin), column + next,
                              std::min(panel_width<A>, cols - next),
                              div_ceil(rows, int64_t(rows_in_registers)) * words);
            for (int64_t i = 0; i < rows; i += rows_in_registers) {
                const int64_t count = std::min<int64_t>(rows_in_registers, rows - i);
                micro_block<true>(out.at(i, j), add.at(i, j), memory.left + i * words, 0, memory.panel, words,
                                  count, width, ahead);
            }
        }
        add = {out.data, out.ld};
    }
    if constexpr (!std::is_same_v<A, D>)
        for (int64_t r = 0; r < rows; ++r) {
            A* const sums = memory.sums + r * grouped_columns;
            if (accumulate) add_to(sums, d.row<const D>(r), cols);
            store_row(d.row<D>(r), sums, cols);
        }
}

/// The most rows and columns of a job.
struct JobSize {
    int64_t rows = grouped_rows_of_job, columns = grouped_columns;
};
static_assert(grouped_rows_of_job % rows_in_registers == 0);

/// The rows of a product, divided evenly into jobs.
struct RowJobs {
    int64_t rows, jobs, rows_of_job;
    RowJobs(int64_t all, const JobSize& size)
        : rows(all),
          jobs(div_ceil(all, size.rows)),
          rows_of_job(jobs ? round_up(div_ceil(all, jobs), rows_in_registers) : 0) {}
};

/// The number of jobs of all groups' products, which have rows_of(group) rows.
template <class R>
int64_t count_jobs(const Groups& groups, int64_t cols, R&& rows_of, const JobSize& size) {
    int64_t jobs = 0;
    for (int64_t g = 0; g < groups.number(); ++g) jobs += RowJobs(rows_of(g), size).jobs;
    return jobs * div_ceil(cols, size.columns);
}

/// Calls f(memory, group, row, rows, column, cols) for the blocks of all groups' products. The threads share
/// the blocks. Jobs become smaller until there are two for each thread.
template <class T, class R, class F>
void for_jobs(Exec& exec, const Groups& groups, int64_t cols, R&& rows_of, F&& f) {
    constexpr int64_t fewest_columns = 64, fewest_rows = 48;
    JobSize size;
    const auto jobs_of_all = [&] { return count_jobs(groups, cols, rows_of, size); };
    if (exec.threads > 1) {
        while (size.columns > fewest_columns && jobs_of_all() < 2 * exec.threads) size.columns /= 2;
        while (size.rows > fewest_rows && jobs_of_all() < 2 * exec.threads)
            size.rows = std::max(fewest_rows, size.rows / 2);
    }
    const Scope scope(exec.workspace);
    Word<T>* const words = alloc_words<T>(exec, exec.threads * workspace::grouped_words());
    const int64_t jobs = jobs_of_all(), across = div_ceil(cols, size.columns);
#pragma omp parallel for num_threads(exec.threads) schedule(dynamic)
    for (int64_t job = 0; job < jobs; ++job) {
        int64_t g = 0, left = job;
        for (int64_t here; left >= (here = RowJobs(rows_of(g), size).jobs * across); ++g) left -= here;
        const RowJobs by_rows(rows_of(g), size);
        const int64_t row = left / across * by_rows.rows_of_job, column = left % across * size.columns;
        if (row >= by_rows.rows) continue;  // whole blocks of registers left nothing for the last job
        f(JobMemory<T>(words, thread_index()), g, row, std::min(by_rows.rows_of_job, by_rows.rows - row),
          column, std::min(size.columns, cols - column));
    }
}

void zero_padding(Exec& exec, const Tensor& d, const Groups& groups) {
    for (int64_t g = 0; g < groups.number(); ++g) {
        const GroupRows rows = rows_of_group(groups, g);
        if (rows.padded > rows.count)
            Cpu::zero(exec, d.slice_rows(rows.begin + rows.count, rows.padded - rows.count));
    }
}

}  // namespace

void Cpu::grouped_gemm(Exec& exec, Tensor d, Tensor a, Operand b, const Groups& groups) {
    check_groups(groups, d);
    const int64_t number = groups.number(), columns = d.cols(), depth = a.cols();
    require(a.rows() == d.rows() && b.tensor.rows() == number * (b.is_transposed ? columns : depth) &&
                b.tensor.cols() == (b.is_transposed ? depth : columns) && a.dtype == b.tensor.dtype &&
                (d.dtype == a.dtype || d.dtype == acc_of(a.dtype)),
            "grouped_gemm: shapes or types do not fit");
    exec.workspace.touch(workspace::grouped_gemm(a, exec.threads));
    if (depth == 0 || columns == 0) return zero(exec, d);
    const auto rows_of = [&](int64_t g) { return rows_of_group(groups, g).count; };
    const auto multiply = [&]<class T, class D>(T, D) {
        for_jobs<T>(exec, groups, columns, rows_of,
                    [&](const JobMemory<T>& memory, int64_t g, int64_t row, int64_t rows, int64_t column,
                        int64_t cols) {
                        const int64_t first = rows_of_group(groups, g).begin + row;
                        const Tensor matrix = matrix_of(b.tensor, groups, g), to = d.slice_rows(first, rows);
                        if (b.is_transposed && rows_of(g) <= workspace::thin_rows)
                            thin_gemm_columns(to, a.slice_rows(first, rows), matrix, {}, column,
                                              column + cols);
                        else
                            run_job<T, D>(memory, to.slice_cols(column, cols), a, first,
                                          Operand(matrix, b.is_transposed), column, false);
                    });
    };
    if (a.dtype == Dtype::f64) {
        for (int64_t g = 0; g < number; ++g)
            if (const GroupRows rows = rows_of_group(groups, g); rows.count > 0)
                gemm(exec, d.slice_rows(rows.begin, rows.count), a.slice_rows(rows.begin, rows.count),
                     Operand(matrix_of(b.tensor, groups, g), b.is_transposed), {});
    } else if (a.dtype == Dtype::f32) {
        multiply(float(), float());
    } else if (d.dtype == Dtype::f32) {
        multiply(bf16(), float());
    } else {
        multiply(bf16(), bf16());
    }
    zero_padding(exec, d, groups);
}

void Cpu::grouped_gemm_weights(Exec& exec, Tensor d, Tensor a, Tensor b, Tensor c, const Groups& groups) {
    check_groups(groups, a);
    require(a.rows() == b.rows() && d.rows() == groups.number() * a.cols() && d.cols() == b.cols() &&
                a.dtype == b.dtype && (d.dtype == a.dtype || d.dtype == acc_of(a.dtype)) &&
                (!c || c.data == d.data),
            "grouped_gemm_weights: shapes or types do not fit");
    exec.workspace.touch(workspace::grouped_gemm(a, exec.threads));
    const auto rows_in = [&](const Tensor& t, int64_t g) {
        const GroupRows rows = rows_of_group(groups, g);
        return t.slice_rows(rows.begin, rows.count);
    };
    if (!c)
        for (int64_t g = 0; g < groups.number(); ++g)
            if (rows_of_group(groups, g).count == 0) zero(exec, matrix_of(d, groups, g));
    if (a.dtype == Dtype::f64) {
        for (int64_t g = 0; g < groups.number(); ++g)
            if (rows_of_group(groups, g).count > 0) {
                const Tensor sums = matrix_of(d, groups, g);
                gemm(exec, sums, transposed(rows_in(a, g)), rows_in(b, g), c ? sums : Tensor{});
            }
        return;
    }
    const auto rows_of = [&](int64_t g) { return rows_of_group(groups, g).count > 0 ? a.cols() : 0; };
    const auto multiply = [&]<class T, class D>(T, D) {
        for_jobs<T>(
            exec, groups, d.cols(), rows_of,
            [&](const JobMemory<T>& memory, int64_t g, int64_t row, int64_t rows, int64_t column,
                int64_t cols) {
                const Tensor block = matrix_of(d, groups, g).slice_rows(row, rows).slice_cols(column, cols);
                run_job<T, D>(memory, block, transposed(rows_in(a, g)), row, rows_in(b, g), column, bool(c));
            });
    };
    if (a.dtype == Dtype::f32)
        multiply(float(), float());
    else if (d.dtype == Dtype::f32)
        multiply(bf16(), float());
    else
        multiply(bf16(), bf16());
}

}  // namespace coeus::cpu
