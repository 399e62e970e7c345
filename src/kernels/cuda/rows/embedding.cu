// SPDX-License-Identifier: Apache-2.0
// Embedding: rows of a table by token. The backward first sorts the tokens by their rows, in a block, by a
// stable radix sort. Then a warp adds up all gradients of a row in the order of the tokens. So each row is
// read and written once, there are neither conflicts nor atomics, and the bits are those of the CPU.
#include "../../rows/matrix.hpp"
#include "../cuda.hpp"
#include "../launch.hpp"
#include "../ptx/mma.hpp"
#include "../workspace.hpp"

#include <bit>
#include <utility>

namespace coeus::cuda {

namespace {

template <class T>
__global__ void embedding_kernel(Rows<T> y, const int32_t* tokens, Rows<const T> table, int64_t rows,
                                 int64_t width, int64_t first, Acc<T> scale) {
    const int64_t t = blockIdx.x, row = tokens[t] - first;
    const Threads team(threadIdx.x, blockDim.x);
    if (row >= 0 && row < rows)
        team.map(
            width, y[t], [=](Acc<T> x) { return scale * x; }, table[row]);
    else
        team.map(width, y[t], [] { return Acc<T>(0); });
}

/// A token as it is sorted: its row of the table, and then its place in the batch.
using PlacedToken = int64_t;
__device__ inline PlacedToken placed_token(int64_t row, int64_t token) {
    return row << 32 | token;
}
__device__ inline int64_t row_of(PlacedToken placed) {
    return placed >> 32;
}
__device__ inline int32_t token_of(PlacedToken placed) {
    return int32_t(placed);
}

constexpr int sort_threads = 1024, sort_warps = sort_threads / warp_size;
constexpr int digit_bits = 4, digits = 1 << digit_bits;
constexpr int counters = digits * sort_threads;
constexpr size_t sort_shared_bytes = (counters + sort_warps) * sizeof(int32_t);

/// Replaces each counter by the sum of those before it. Each warp takes one run of them.
__device__ inline void sum_before(int32_t* counts, int32_t* of_warps) {
    constexpr int run = counters / sort_warps;
    const int warp = int(threadIdx.x) / warp_size, lane = int(threadIdx.x) % warp_size;
    int32_t* const own = counts + warp * run;
    int32_t total = 0;
    for (int i = lane; i < run; i += warp_size) {
        const int32_t count = own[i], up_to = warp_sum_up_to(count);
        own[i] = total + up_to - count;
        total += __shfl_sync(whole_warp, up_to, warp_size - 1);
    }
    if (lane == 0) of_warps[warp] = total;
    __syncthreads();
    int32_t before = 0;
    for (int other = 0; other < warp; ++other) before += of_warps[other];
    for (int i = lane; i < run; i += warp_size) own[i] += before;
    __syncthreads();
}

/// One block. Sorts by row, digit by digit from the lowest one. Each thread moves the same places in each
/// pass, in order, after those of the threads before it: so the sort is stable. Tokens outside the part come
/// last, with the row `rows`.
__global__ void sort_tokens_kernel(PlacedToken* sorted, PlacedToken* other, const int32_t* tokens,
                                   int64_t count, int64_t rows, int64_t first_row, int passes) {
    int32_t* const counts = reinterpret_cast<int32_t*>(shared_memory());
    int32_t* const own = counts + threadIdx.x;  // of a digit: own[digit * sort_threads]
    const int64_t share = (count + sort_threads - 1) / sort_threads, first = threadIdx.x * share,
                  last = first + share < count ? first + share : count;
    PlacedToken *from = passes % 2 == 0 ? sorted : other, *to = passes % 2 == 0 ? other : sorted;
    for (int64_t t = first; t < last; ++t) {
        const int64_t row = tokens[t] - first_row;
        from[t] = placed_token(row >= 0 && row < rows ? row : rows, t);
    }
    for (int pass = 0; pass < passes; ++pass) {
        const auto counter_of = [=](PlacedToken placed) -> int32_t& {
            return own[(placed >> (32 + pass * digit_bits) & (digits - 1)) * sort_threads];
        };
        for (int digit = 0; digit < digits; ++digit) own[digit * sort_threads] = 0;
        for (int64_t i = first; i < last; ++i) ++counter_of(from[i]);
        __syncthreads();
        sum_before(counts, counts + counters);
        for (int64_t i = first; i < last; ++i) to[counter_of(from[i])++] = from[i];
        __syncthreads();
        PlacedToken* const next = to;
        to = from;
        from = next;
    }
}

/// A warp for each place in the sorted order and each part of the columns, `size` columns a lane. That of a
/// row's first place adds up the row. Lanes after the last column read the first gradients.
template <int size, class T>
__global__ void embedding_backward_kernel(Rows<Acc<T>> dtable, Rows<const T> dy, const PlacedToken* sorted,
                                          int64_t count, int64_t rows, int64_t width, Acc<T> scale) {
    constexpr int ahead = 8;  // gradients that are loaded before they are added
    const int lane = int(threadIdx.x) % warp_size;
    const int64_t place = int64_t(blockIdx.x) * (blockDim.x / warp_size) + threadIdx.x / warp_size,
                  own_column = (int64_t(blockIdx.y) * warp_size + lane) * size,
                  column = own_column < width ? own_column : 0;
    if (place >= count) return;
    const int64_t row = row_of(sorted[place]);
    if (row == rows || (place > 0 && row_of(sorted[place - 1]) == row)) return;
    Acc<T>* const to = dtable[row] + column;
    Pack<Acc<T>, size> sums = {};
    if (own_column < width) sums = load_pack<size>(to);
    int number = warp_size;  // of the row's gradients, among the next ones
    for (int64_t first = place; number == warp_size; first += warp_size) {
        const PlacedToken own = first + lane < count ? sorted[first + lane] : placed_token(rows, 0);
        number = __popc(__ballot_sync(whole_warp, row_of(own) == row));
        for (int i = 0; i < number; i += ahead) {
            Pack<T, size> packs[ahead];
            COEUS_UNROLL
            for (int k = 0; k < ahead; ++k) {
                const int32_t t = __shfl_sync(whole_warp, token_of(own), i + k);
                if (i + k < number) packs[k] = load_pack<size>(dy[t] + column);
            }
            COEUS_UNROLL
            for (int k = 0; k < ahead; ++k)
                if (i + k < number) {
                    COEUS_UNROLL
                    for (int e = 0; e < size; ++e) sums.values[e] += scale * load(packs[k].values[e]);
                }
        }
    }
    if (own_column < width) store_pack<size>(to, sums);
}

}  // namespace

void Cuda::embedding(Exec& exec, Tensor y, Tensor tokens, Tensor table, VocabularyPart part) {
    require(y.cols() == table.cols() && y.dtype == table.dtype, "embedding: output and table differ");
    require(tokens.count() == y.rows(), "embedding: needs one token for each row");
    dispatch(y.dtype, [&]<class T>(T) {
        launch(exec, "embedding", {blocks_for(y.rows()), threads_for(y.cols())}, embedding_kernel<T>,
               rows_of<T>(y), tokens.as<const int32_t>(), rows_of<const T>(table), table.rows(), y.cols(),
               part.first, Acc<T>(part.scale));
    });
}

void Cuda::embedding_backward(Exec& exec, Tensor dtable, Tensor dy, Tensor tokens, VocabularyPart part) {
    require(dtable.cols() == dy.cols(), "embedding: gradients differ in width");
    require(tokens.count() == dy.rows(), "embedding: needs one token for each row");
    const int64_t count = tokens.count(), rows = dtable.rows(), width = dy.cols();
    const Scope temps(exec.workspace);
    const auto tokens_to_place = [&] { return exec.workspace.alloc(Dtype::i64, {count}).as<PlacedToken>(); };
    PlacedToken *const sorted = tokens_to_place(), *const other = tokens_to_place();
    launch(exec, "sort_tokens", {1, sort_threads, sort_shared_bytes}, sort_tokens_kernel, sorted, other,
           tokens.as<const int32_t>(), count, rows, part.first,
           int(div_ceil(std::bit_width(uint64_t(rows)), digit_bits)));
    dispatch(dy.dtype, [&]<class T>(T) {
        const auto add = [&]<int size>(std::integral_constant<int, size>) {
            constexpr int warps = 8;
            launch(exec, "embedding_backward",
                   {dim3(blocks_for(div_ceil(count, warps)), blocks_for(div_ceil(width, warp_size * size))),
                    warps * warp_size},
                   embedding_backward_kernel<size, T>, rows_of<Acc<T>>(dtable), rows_of<const T>(dy), sorted,
                   count, rows, width, Acc<T>(part.scale));
        };
        constexpr int size = pack_count<Acc<T>>();
        if (in_pieces({dtable, dy}) && width % size == 0)
            add(std::integral_constant<int, size>());
        else
            add(std::integral_constant<int, 1>());
    });
}

}  // namespace coeus::cuda
