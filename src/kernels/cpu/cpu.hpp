// SPDX-License-Identifier: Apache-2.0
// The CPU's kernels (one function for each entry of the table) and what they share: dispatch on the element
// type and loops over fixed blocks, so that no result depends on the number of threads.
#pragma once

#include "../math.hpp"
#include "../observed.hpp"

#include <omp.h>

#include <algorithm>
#include <type_traits>

namespace coeus::cpu {

/// The functions behind the table's entries.
struct Cpu {
    static Function<decltype(Kernels::gemm)> gemm;
    static Function<decltype(Kernels::embedding)> embedding;
    static Function<decltype(Kernels::embedding_backward)> embedding_backward;
    static Function<decltype(Kernels::rms_norm)> rms_norm;
    static Function<decltype(Kernels::rms_norm_backward)> rms_norm_backward;
    static Function<decltype(Kernels::layer_norm)> layer_norm;
    static Function<decltype(Kernels::layer_norm_backward)> layer_norm_backward;
    static Function<decltype(Kernels::rope)> rope;
    static Function<decltype(Kernels::attention)> attention;
    static Function<decltype(Kernels::merge_attention)> merge_attention;
    static Function<decltype(Kernels::attention_backward)> attention_backward;
    static Function<decltype(Kernels::attention_cached)> attention_cached;
    static Function<decltype(Kernels::swiglu)> swiglu;
    static Function<decltype(Kernels::swiglu_backward)> swiglu_backward;
    static Function<decltype(Kernels::log_sum_exp)> log_sum_exp;
    static Function<decltype(Kernels::add_log_sum_exp)> add_log_sum_exp;
    static Function<decltype(Kernels::cross_entropy)> cross_entropy;
    static Function<decltype(Kernels::cast)> cast;
    static Function<decltype(Kernels::add)> add;
    static Function<decltype(Kernels::sum_parts)> sum_parts;
    static Function<decltype(Kernels::zero)> zero;
    static Function<decltype(Kernels::sum)> sum;
    static Function<decltype(Kernels::sum_of_squares)> sum_of_squares;
    static Function<decltype(Kernels::finish_norm)> finish_norm;
    static Function<decltype(Kernels::adam)> adam;
};

/// Calls f with a value of the element type.
template <class F>
void dispatch(Dtype type, F&& f) {
    switch (type) {
        case Dtype::f64: return f(double());
        case Dtype::f32: return f(float());
        case Dtype::bf16: return f(bf16());
        default: throw LogicError(fmt::format("a kernel got {}; it takes floats", name_of(type)));
    }
}

/// Number of the calling thread within a parallel region.
inline int64_t thread_index() {
    return omp_get_thread_num();
}

/// f(block, first, last) for the blocks [first, last) of `size` that make up [0, count), shared by the
/// threads.
template <class F>
void parallel_blocks(const Exec& exec, int64_t count, int64_t size, F&& f) {
    const int64_t blocks = div_ceil(count, size);
#pragma omp parallel for num_threads(exec.threads) schedule(static) if (blocks > 1)
    for (int64_t block = 0; block < blocks; ++block)
        f(block, block * size, std::min(count, (block + 1) * size));
}

/// Rows that make a block of about 16 Ki elements: enough work for one thread to be worth waking.
inline int64_t rows_per_block(int64_t cols) {
    return std::max<int64_t>(1, (int64_t(1) << 14) / std::max<int64_t>(1, cols));
}

/// f(row) for each of the rows, which have `cols` elements.
template <class F>
void parallel_rows(const Exec& exec, int64_t rows, int64_t cols, F&& f) {
    parallel_blocks(exec, rows, rows_per_block(cols), [&](int64_t, int64_t first, int64_t last) {
        for (int64_t row = first; row < last; ++row) f(row);
    });
}

}  // namespace coeus::cpu
