// SPDX-License-Identifier: Apache-2.0
// Sums in double: blocks of elements first, then one block adds their results in a fixed order; and the
// clipping factor from the gradient's norm.
#include "../../rows/matrix.hpp"
#include "../cuda.hpp"
#include "../launch.hpp"
#include "../workspace.hpp"
#include "streams.hpp"

#include <cmath>

namespace coeus::cuda {

namespace {

/// partial[i]: the sum of row i of `rows`; the last row has `last` elements.
template <class T>
__global__ void sum_kernel(double* partial, Rows<const T> rows, int64_t width, int64_t last, bool squares) {
    const BlockTeam team(shared_memory());
    const int64_t n = blockIdx.x + 1 == gridDim.x ? last : width;
    double sum = 0;
    const Streams threads(threadIdx.x, blockDim.x);
    if (squares)
        threads.visit(
            n, [&](auto x) { sum += double(x) * double(x); }, rows[blockIdx.x]);
    else
        threads.visit(
            n, [&](auto x) { sum += double(x); }, rows[blockIdx.x]);
    const double total = team.sum_of_threads(sum);
    if (team.first()) partial[blockIdx.x] = total;
}

__global__ void add_sums_kernel(double* out, const double* partial, int64_t count) {
    const BlockTeam team(shared_memory());
    const double total = team.sum<double>(
        count, [](double x) { return x; }, partial);
    if (team.first()) *out += total;
}

void reduce(Exec& exec, double* out, Tensor a, bool squares) {
    if (a.count() == 0) return;
    const Scope scope(exec.workspace);
    // blocks of a dense tensor, or the rows of another
    const int64_t width = a.dense() ? workspace::sum_block : a.cols();
    const int64_t distance = a.dense() ? workspace::sum_block : a.ld;
    const int64_t blocks = a.dense() ? div_ceil(a.count(), width) : a.rows();
    double* partial = exec.workspace.alloc(Dtype::f64, {blocks}).as<double>();
    const auto sum = [&]<class T>(T) {
        launch(exec, "sum", {blocks_for(blocks), threads_for(width), BlockTeam::shared_bytes}, sum_kernel<T>,
               partial, Rows<const T>{a.as<const T>(), distance}, width, a.count() - (blocks - 1) * width,
               squares);
    };
    // scalars of a step are doubles
    if (a.dtype == Dtype::f64)
        sum(double());
    else
        dispatch(a.dtype, sum);
    launch(exec, "add_sums", {1, 256, BlockTeam::shared_bytes}, add_sums_kernel, out, partial, blocks);
}

__global__ void finish_norm_kernel(StepScalars* scalars, double max_norm) {
    rows::finish_norm(*scalars, max_norm);
}

}  // namespace

void Cuda::sum(Exec& exec, double* out, Tensor a) {
    reduce(exec, out, a, false);
}

void Cuda::sum_of_squares(Exec& exec, double* out, Tensor a) {
    reduce(exec, out, a, true);
}

void Cuda::finish_norm(Exec& exec, StepScalars& scalars, double max_norm) {
    launch(exec, "finish_norm", {1, 1}, finish_norm_kernel, &scalars, max_norm);
}

}  // namespace coeus::cuda
