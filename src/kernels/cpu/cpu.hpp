// SPDX-License-Identifier: Apache-2.0
// The CPU's kernels, one function for each entry of the table, and what they share: dispatch on the element
// type and on the activation, and loops over blocks of fixed size, so that no result depends on the number of
// threads.
#pragma once

#include "../math.hpp"
#include "../observed.hpp"

#include <omp.h>

#include <algorithm>
#include <type_traits>

namespace coeus::cpu {

using namespace rows;

/// The functions of the table's entries.
struct Cpu {
#define COEUS_FUNCTION(name) static Function<decltype(Kernels::name)> name;
    COEUS_EACH_KERNEL(COEUS_FUNCTION)
#undef COEUS_FUNCTION
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

/// Calls f with the activation as a constant: an integral_constant.
template <class F>
auto with_activation(Activation activation, F&& f) {
    if (activation == Activation::gelu_tanh)
        return f(std::integral_constant<Activation, Activation::gelu_tanh>());
    return f(std::integral_constant<Activation, Activation::silu>());
}

/// The calling thread's number within a parallel region.
inline int64_t thread_index() {
    return omp_get_thread_num();
}

/// Calls f(block, first, last) for the blocks [first, last) of `size` that make up [0, count). The threads
/// share the blocks.
template <class F>
void parallel_blocks(const Exec& exec, int64_t count, int64_t size, F&& f) {
    const int64_t blocks = div_ceil(count, size);
#pragma omp parallel for num_threads(exec.threads) schedule(static) if (blocks > 1)
    for (int64_t block = 0; block < blocks; ++block)
        f(block, block * size, std::min(count, (block + 1) * size));
}

/// Number of rows in a block of about 16 Ki elements, which is enough work to make another thread worthwhile.
inline int64_t rows_per_block(int64_t cols) {
    return std::max<int64_t>(1, (int64_t(1) << 14) / std::max<int64_t>(1, cols));
}

/// Calls f(row) for each row; rows have `cols` elements.
template <class F>
void parallel_rows(const Exec& exec, int64_t rows, int64_t cols, F&& f) {
    parallel_blocks(exec, rows, rows_per_block(cols), [&](int64_t, int64_t first, int64_t last) {
        for (int64_t row = first; row < last; ++row) f(row);
    });
}

}  // namespace coeus::cpu
