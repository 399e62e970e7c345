// SPDX-License-Identifier: Apache-2.0
// RMSNorm of rows whose columns ranks divide. A block has a row; in the backward it has several rows, and
// sums their part of the weight's gradient (column_sums.hpp).
#include "../../rows/matrix.hpp"
#include "../../rows/norm.hpp"
#include "../cuda.hpp"
#include "column_sums.hpp"

namespace coeus::cuda {

namespace {

template <class T>
__global__ void row_products_kernel(Acc<T>* sums, Rows<const T> a, Rows<const T> b, const T* weight,
                                    int64_t width, Acc<T> offset) {
    using A = Acc<T>;
    const BlockTeam team(shared_memory());
    const int64_t row = blockIdx.x;
    const A sum = weight ? rms_norm_product<A>(team, a[row], b[row], weight, offset, width)
                         : team.template sum<A>(
                               width, [](A aj, A bj) { return aj * bj; }, a[row], b[row]);
    if (team.first()) sums[row] = sum;
}

/// The constants of a call, for rows of `all` columns on all ranks together.
template <class A>
struct Constants {
    A all, eps, offset;
    template <class T>
    __device__ A rstd(A squares) const {
        return inverse_root<T>(squares / all + eps);
    }
};

template <class T>
__global__ void divided_norm_kernel(Rows<T> y, Rows<const T> x, const Acc<T>* squares, const T* weight,
                                    int64_t width, Constants<Acc<T>> constants) {
    const BlockTeam team(shared_memory());
    const int64_t row = blockIdx.x;
    rms_norm_scaled_row(team, y[row], x[row], constants.template rstd<T>(squares[row]), weight,
                        constants.offset, width);
}

/// partial[block][width]: sums of the weight's gradient, or null.
template <class T>
__global__ void divided_norm_backward_kernel(Rows<T> dx, Acc<T>* partial, Rows<const T> dy, Rows<const T> x,
                                             const Acc<T>* squares, const Acc<T>* products, const T* weight,
                                             int64_t rows, int64_t block, int64_t width,
                                             Constants<Acc<T>> constants) {
    using A = Acc<T>;
    const BlockTeam team(shared_memory());
    A* const sums = reinterpret_cast<A*>(shared_memory() + BlockTeam::shared_bytes);
    const int64_t begin = int64_t(blockIdx.x) * block, end = begin + block < rows ? begin + block : rows;
    if (partial) team.map(width, sums, [] { return A(0); });
    for (int64_t i = begin; i < end; ++i) {
        const A r = constants.template rstd<T>(squares[i]);
        team.barrier();  // unaligned rows divide their columns among the threads differently
        if (partial)
            team.map(
                width, sums, [=](A sum, A dyj, A xj) { return sum + dyj * xj * r; }, sums, dy[i], x[i]);
        team.barrier();  // dx may be x
        rms_norm_pulled_row(team, dx[i], dy[i], static_cast<const T*>(nullptr), x[i], r,
                            products[i] * r * r / constants.all, weight, constants.offset, width);
    }
    if (!partial) return;
    team.barrier();
    team.map(
        width, partial + blockIdx.x * width, [](A sum) { return sum; }, sums);
}

void check_divided(const Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& sums,
                   int64_t width) {
    require(y.rows() == x.rows() && y.cols() == x.cols(), "norm: input and output differ in shape");
    require(weight.count() == x.cols(), "norm: the weight does not have the width of the input");
    require(sums.count() == x.rows(), "norm: needs one sum for each row");
    require(width >= x.cols(), "norm: a part of the columns is wider than all of them");
}

Grid grid_of_rows(int64_t rows, int64_t width) {
    return {blocks_for(rows), threads_for(width), BlockTeam::shared_bytes};
}

template <class A>
Constants<A> constants_of(int64_t width, const NormForm& form) {
    return {A(width), A(form.eps), A(form.offset)};
}

}  // namespace

void Cuda::row_products(Exec& exec, Tensor sums, Tensor a, Tensor b, Tensor weight, double offset) {
    require(a.rows() == b.rows() && a.cols() == b.cols(), "row_products: the operands differ in shape");
    require(sums.count() == a.rows(), "row_products: needs one sum for each row");
    dispatch(a.dtype, [&]<class T>(T) {
        launch(exec, "row_products", grid_of_rows(a.rows(), a.cols()), row_products_kernel<T>,
               sums.as<Acc<T>>(), rows_of<const T>(a), rows_of<const T>(b),
               weight ? weight.as<const T>() : nullptr, a.cols(), Acc<T>(offset));
    });
}

void Cuda::divided_norm(Exec& exec, Tensor y, Tensor x, Tensor squares, Tensor weight, int64_t width,
                        const NormForm& form) {
    check_divided(y, x, weight, squares, width);
    dispatch(x.dtype, [&]<class T>(T) {
        launch(exec, "divided_norm", grid_of_rows(x.rows(), x.cols()), divided_norm_kernel<T>, rows_of<T>(y),
               rows_of<const T>(x), squares.as<const Acc<T>>(), weight.as<const T>(), x.cols(),
               constants_of<Acc<T>>(width, form));
    });
}

void Cuda::divided_norm_backward(Exec& exec, Tensor dx, Tensor dweight, Tensor dy, Tensor x, Tensor squares,
                                 Tensor products, Tensor weight, int64_t width, const NormForm& form) {
    check_divided(dx, x, weight, squares, width);
    const int64_t rows = x.rows(), cols = x.cols();
    dispatch(x.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        const int64_t block = workspace::norm_block(rows, cols);
        const auto launch_sums = [&](A* partial, int64_t blocks) {
            Grid grid = grid_of_rows(blocks, cols);
            if (partial) grid.shared_bytes += size_t(cols) * sizeof(A);
            launch(exec, "divided_norm_backward", grid, divided_norm_backward_kernel<T>, rows_of<T>(dx),
                   partial, rows_of<const T>(dy), rows_of<const T>(x), squares.as<const A>(),
                   products.as<const A>(), weight.as<const T>(), rows, block, cols,
                   constants_of<A>(width, form));
        };
        add_column_sums<A>(exec, dweight, rows, cols, launch_sums, block);
    });
}

}  // namespace coeus::cuda
