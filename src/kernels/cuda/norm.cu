// SPDX-License-Identifier: Apache-2.0
// RMSNorm and LayerNorm. In the forward there is a block for each row. In the backward there is a block for
// several rows, which sums their part of the weight's gradient in shared memory; a second kernel adds the
// parts in order. So there are no atomics.
#include "../rows/matrix.hpp"
#include "../rows/norm.hpp"
#include "cuda.hpp"
#include "launch.hpp"
#include "team.hpp"
#include "workspace.hpp"

namespace coeus::cuda {

namespace {

template <class T>
__global__ void rms_norm_kernel(Rows<T> y, Acc<T>* rstd, Rows<const T> x, const T* weight, int64_t width,
                                Acc<T> eps) {
    const BlockTeam team(shared_memory());
    const int64_t row = blockIdx.x;
    const Acc<T> r = rms_norm_row(team, y[row], x[row], weight, width, eps);
    if (team.first()) rstd[row] = r;
}

template <class T>
__global__ void layer_norm_kernel(Rows<T> y, Acc<T>* mean, Acc<T>* rstd, Rows<const T> x, const T* weight,
                                  int64_t width, Acc<T> eps) {
    const BlockTeam team(shared_memory());
    const int64_t row = blockIdx.x;
    const MeanAndRstd<Acc<T>> kept = layer_norm_row(team, y[row], x[row], weight, width, eps);
    if (team.first()) {
        mean[row] = kept.mean;
        rstd[row] = kept.rstd;
    }
}

/// mean: null for RMSNorm. partial[block][width]: sums of the weight's gradient, or null.
template <class T>
__global__ void norm_backward_kernel(Rows<T> dx, Acc<T>* partial, Rows<const T> dy, Rows<const T> plus,
                                     Rows<const T> x, const Acc<T>* mean, const Acc<T>* rstd, const T* weight,
                                     int64_t rows, int64_t width) {
    using A = Acc<T>;
    const BlockTeam team(shared_memory());
    A* sums = reinterpret_cast<A*>(shared_memory() + BlockTeam::shared_bytes);
    const int64_t begin = int64_t(blockIdx.x) * workspace::norm_block,
                  end = begin + workspace::norm_block < rows ? begin + workspace::norm_block : rows;
    if (partial) team.map(width, sums, [] { return A(0); });
    team.barrier();  // unaligned rows divide their columns among the threads differently
    for (int64_t i = begin; i < end; ++i) {
        const A r = rstd[i], m = mean ? mean[i] : A(0);
        if (partial)
            team.map(
                width, sums, [=](A sum, A dyj, A xj) { return sum + dyj * (xj - m) * r; }, sums, dy[i], x[i]);
        if (mean)
            layer_norm_backward_row(team, dx[i], dy[i], plus[i], x[i], m, r, weight, width);
        else
            rms_norm_backward_row(team, dx[i], dy[i], plus[i], x[i], r, weight, width);
    }
    if (partial)
        team.map(
            width, partial + blockIdx.x * width, [](A sum) { return sum; }, sums);
}

/// out[j] += sum over the blocks of partial[block][j], in order.
template <class A>
__global__ void add_partial_kernel(A* out, const A* partial, int64_t blocks, int64_t width) {
    grid_team().each(width, [=](int64_t j) {
        A total = 0;
        for (int64_t block = 0; block < blocks; ++block) total += partial[block * width + j];
        out[j] += total;
    });
}

void check(Tensor y, Tensor x, Tensor weight, Tensor statistic) {
    require(y.rows() == x.rows() && y.cols() == x.cols(), "norm: input and output differ in shape");
    require(!weight || weight.count() == x.cols(), "norm: the weight does not have the width of the input");
    require(statistic.count() == x.rows(), "norm: needs one statistic for each row");
}

Grid rows_grid(int64_t rows, int64_t width) {
    return {blocks_for(rows), threads_for(width), BlockTeam::shared_bytes};
}

void norm_backward(Exec& exec, Tensor dx, Tensor dweight, Tensor dy, Tensor plus, Tensor x, Tensor mean,
                   Tensor rstd, Tensor weight) {
    check(dx, x, weight, rstd);
    const Scope scope(exec.workspace);
    const int64_t rows = x.rows(), width = x.cols(), blocks = div_ceil(rows, workspace::norm_block);
    dispatch(x.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        A* partial =
            dweight ? exec.workspace.alloc(dweight.dtype, {blocks, width}).template as<A>() : nullptr;
        Grid grid = rows_grid(blocks, width);
        if (partial) grid.shared_bytes += size_t(width) * sizeof(A);
        launch(exec, "norm_backward", grid, norm_backward_kernel<T>, rows_of<T>(dx), partial,
               rows_of<const T>(dy), rows_of<const T>(plus), rows_of<const T>(x),
               mean ? mean.as<const A>() : nullptr, rstd.as<const A>(),
               weight ? weight.as<const T>() : nullptr, rows, width);
        if (partial)
            launch(exec, "add_partial", {blocks_for(div_ceil(width, 256))}, add_partial_kernel<A>,
                   dweight.as<A>(), partial, blocks, width);
    });
}

}  // namespace

void Cuda::rms_norm(Exec& exec, Tensor y, Tensor rstd, Tensor x, Tensor weight, double eps) {
    check(y, x, weight, rstd);
    dispatch(x.dtype, [&]<class T>(T) {
        launch(exec, "rms_norm", rows_grid(x.rows(), x.cols()), rms_norm_kernel<T>, rows_of<T>(y),
               rstd.as<Acc<T>>(), rows_of<const T>(x), weight.as<const T>(), x.cols(), Acc<T>(eps));
    });
}

void Cuda::rms_norm_backward(Exec& exec, Tensor dx, Tensor dweight, Tensor dy, Tensor plus, Tensor x,
                             Tensor rstd, Tensor weight) {
    norm_backward(exec, dx, dweight, dy, plus, x, {}, rstd, weight);
}

void Cuda::layer_norm(Exec& exec, Tensor y, Tensor mean, Tensor rstd, Tensor x, Tensor weight, double eps) {
    check(y, x, weight, rstd);
    dispatch(x.dtype, [&]<class T>(T) {
        launch(exec, "layer_norm", rows_grid(x.rows(), x.cols()), layer_norm_kernel<T>, rows_of<T>(y),
               mean.as<Acc<T>>(), rstd.as<Acc<T>>(), rows_of<const T>(x),
               weight ? weight.as<const T>() : nullptr, x.cols(), Acc<T>(eps));
    });
}

void Cuda::layer_norm_backward(Exec& exec, Tensor dx, Tensor dweight, Tensor dy, Tensor plus, Tensor x,
                               Tensor mean, Tensor rstd, Tensor weight) {
    norm_backward(exec, dx, dweight, dy, plus, x, mean, rstd, weight);
}

}  // namespace coeus::cuda
