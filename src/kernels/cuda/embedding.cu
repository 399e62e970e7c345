// SPDX-License-Identifier: Apache-2.0
// Embedding: rows of a table by token. In the backward, the block of a token's first occurrence in the batch
// adds up all its occurrences in order, so there are neither conflicts nor atomics.
#include "../rows/matrix.hpp"
#include "cuda.hpp"
#include "launch.hpp"
#include "team.hpp"

namespace coeus::cuda {

namespace {

template <class T>
__global__ void embedding_kernel(Rows<T> y, const int32_t* tokens, Rows<const T> table, int64_t rows,
                                 int64_t width, int64_t first) {
    const int64_t t = blockIdx.x, row = tokens[t] - first;
    const Threads team(threadIdx.x, blockDim.x);
    if (row >= 0 && row < rows)
        team.map(
            width, y[t], [](auto x) { return x; }, table[row]);
    else
        team.map(width, y[t], [] { return Acc<T>(0); });
}

/// Block (t, part of the columns). It scans the tokens in groups, one token per thread.
template <class T>
__global__ void embedding_backward_kernel(Rows<Acc<T>> dtable, Rows<const T> dy, const int32_t* tokens,
                                          int64_t count, int64_t rows, int64_t first, int64_t width,
                                          int64_t part) {
    using A = Acc<T>;
    const int64_t t = blockIdx.x, row = tokens[t] - first;
    if (row < 0 || row >= rows) return;
    const Threads team(threadIdx.x, blockDim.x);
    const int32_t token = tokens[t];
    const int64_t column = blockIdx.y * part, columns = column + part < width ? part : width - column;
    unsigned* votes = reinterpret_cast<unsigned*>(shared_memory());
    for (int64_t group = 0; group < count; group += blockDim.x) {
        const int64_t place = group + threadIdx.x;
        const unsigned same = __ballot_sync(whole_warp, place < count && tokens[place] == token);
        if (threadIdx.x % warp_size == 0) votes[threadIdx.x / warp_size] = same;
        __syncthreads();
        for (unsigned warp = 0; warp < blockDim.x / warp_size; ++warp)
            for (unsigned bits = votes[warp]; bits != 0; bits &= bits - 1) {
                const int64_t source = group + int64_t(warp) * warp_size + (__ffs(int(bits)) - 1);
                if (source < t) return;  // not the first occurrence: all threads find that here
                A* const sum = dtable[row] + column;
                const T* const d = dy[source] + column;
                team.each(columns, [=](int64_t j) { sum[j] += load(d[j]); });
            }
        __syncthreads();
    }
}

}  // namespace

void Cuda::embedding(Exec& exec, Tensor y, Tensor tokens, Tensor table, VocabularyPart part) {
    require(y.cols() == table.cols() && y.dtype == table.dtype, "embedding: output and table differ");
    require(tokens.count() == y.rows(), "embedding: needs one token for each row");
    dispatch(y.dtype, [&]<class T>(T) {
        launch(exec, "embedding", {blocks_for(y.rows()), threads_for(y.cols())}, embedding_kernel<T>,
               rows_of<T>(y), tokens.as<const int32_t>(), rows_of<const T>(table), table.rows(), y.cols(),
               part.first);
    });
}

void Cuda::embedding_backward(Exec& exec, Tensor dtable, Tensor dy, Tensor tokens, VocabularyPart part) {
    require(dtable.cols() == dy.cols(), "embedding: gradients differ in width");
    require(tokens.count() == dy.rows(), "embedding: needs one token for each row");
    constexpr int64_t columns = 1024;  // of a block
    constexpr int threads = 256;
    dispatch(dy.dtype, [&]<class T>(T) {
        launch(exec, "embedding_backward",
               {dim3(blocks_for(dy.rows()), blocks_for(div_ceil(dy.cols(), columns))), threads,
                threads / warp_size * sizeof(unsigned)},
               embedding_backward_kernel<T>, rows_of<Acc<T>>(dtable), rows_of<const T>(dy),
               tokens.as<const int32_t>(), tokens.count(), dtable.rows(), part.first, dy.cols(), columns);
    });
}

}  // namespace coeus::cuda
