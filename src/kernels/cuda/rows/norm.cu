// SPDX-License-Identifier: Apache-2.0
// RMSNorm, of rows or of heads, and LayerNorm. In the forward there is a block for each row, or a warp for
// each head. In the backward there is a block for several rows, which sums their part of the weight's
// gradient in shared memory (column_sums.hpp).
#include "../../rows/matrix.hpp"
#include "../../rows/norm.hpp"
#include "../cuda.hpp"
#include "../quantization/rounded.hpp"
#include "column_sums.hpp"
#include "kept_rows.hpp"

#include <optional>

namespace coeus::cuda {

namespace {

constexpr int kept_forward = 4, kept_backward = 2;      ///< packs of a row that a thread keeps
constexpr int most_threads = 1024, kept_threads = 512;  ///< of a block in the forward and backward

/// Blocks of rows that are kept, or read again.
template <bool is_kept>
using RowTeam = std::conditional_t<is_kept, KeepingBlock<kept_forward>, BlockTeam>;
template <int packs, class T>
__device__ KeptRow<T, packs> row_for(const KeepingBlock<packs>& team, const T* row, int64_t width) {
    return team.keep(row, width);
}
template <class T>
__device__ const T* row_for(const BlockTeam&, const T* row, int64_t) {
    return row;
}

/// Blocks take rows in turn. bits: the largest magnitude of y, if with_largest.
template <class T, bool with_largest, bool is_kept>
__global__ void __launch_bounds__(most_threads)
    rms_norm_kernel(Rows<T> y, Acc<T>* rstd, int32_t* bits, Rows<const T> x, const T* weight, int64_t rows,
                    int64_t width, Acc<T> eps) {
    const MaybeWithLargest<RowTeam<is_kept>, with_largest> team(shared_memory());
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const Acc<T> r = rms_norm_row(team, y[row], row_for(team, x[row], width), weight, width, eps);
        if (team.first()) rstd[row] = r;
    }
    if constexpr (with_largest) raise(bits, team.largest_written().first);
}

/// y: also rounded.
template <class T>
__global__ void rounded_rms_norm_kernel(RoundedRows<T> y, Acc<T>* rstd, Rows<const T> x, const T* weight,
                                        int64_t width, Acc<T> eps) {
    const int64_t row = blockIdx.x;
    y.write(row, width, [=](const auto& team, T* out) {
        const Acc<T> r = rms_norm_row(team, out, x[row], weight, width, eps);
        if (team.first()) rstd[row] = r;
    });
}

template <class T, bool with_largest, bool is_kept>
__global__ void __launch_bounds__(most_threads)
    layer_norm_kernel(Rows<T> y, Acc<T>* mean, Acc<T>* rstd, int32_t* bits, Rows<const T> x, const T* weight,
                      int64_t rows, int64_t width, Acc<T> eps) {
    const MaybeWithLargest<RowTeam<is_kept>, with_largest> team(shared_memory());
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const MeanAndRstd<Acc<T>> of_row =
            layer_norm_row(team, y[row], row_for(team, x[row], width), weight, width, eps);
        if (team.first()) {
            mean[row] = of_row.mean;
            rstd[row] = of_row.rstd;
        }
    }
    if constexpr (with_largest) raise(bits, team.largest_written().first);
}

/// y: also rounded.
template <class T>
__global__ void rounded_layer_norm_kernel(RoundedRows<T> y, Acc<T>* mean, Acc<T>* rstd, Rows<const T> x,
                                          const T* weight, int64_t width, Acc<T> eps) {
    const int64_t row = blockIdx.x;
    y.write(row, width, [=](const auto& team, T* out) {
        const MeanAndRstd<Acc<T>> kept = layer_norm_row(team, out, x[row], weight, width, eps);
        if (!team.first()) return;
        mean[row] = kept.mean;
        rstd[row] = kept.rstd;
    });
}

/// mean: null for RMSNorm. partial[block][width]: sums of the weight's gradient, or null.
template <class T>
__global__ void norm_backward_kernel(Rows<T> dx, Acc<T>* partial, Rows<const T> dy, Rows<const T> plus,
                                     Rows<const T> x, const Acc<T>* mean, const Acc<T>* rstd, const T* weight,
                                     int64_t rows, int64_t block, int64_t width) {
    using A = Acc<T>;
    const BlockTeam team(shared_memory());
    A* sums = reinterpret_cast<A*>(shared_memory() + BlockTeam::shared_bytes);
    const int64_t begin = int64_t(blockIdx.x) * block, end = begin + block < rows ? begin + block : rows;
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

/// The same, with the weight, the sums and two rows of each operand in registers: the next rows are loaded
/// before the sums over this one.
template <class T>
__global__ void __launch_bounds__(kept_threads)
    kept_norm_backward_kernel(Rows<T> dx, Acc<T>* partial, Rows<const T> dy, Rows<const T> plus,
                              Rows<const T> x, const Acc<T>* mean, const Acc<T>* rstd, const T* weight,
                              int64_t rows, int64_t block, int64_t width) {
    using A = Acc<T>;
    using Kept = KeptRow<T, kept_backward>;
    const KeepingBlock<kept_backward> team(shared_memory());
    const int64_t begin = int64_t(blockIdx.x) * block, end = begin + block < rows ? begin + block : rows;
    const Kept w = team.keep(weight, width);
    A sums[kept_backward * pack_count<T>()] = {};
    Kept next_dy = team.keep(dy[begin], width), next_x = team.keep(x[begin], width),
         next_plus = team.keep(plus[begin], width);
    for (int64_t i = begin; i < end; ++i) {
        const Kept dyi = next_dy, xi = next_x, plusi = next_plus;
        const A r = rstd[i], m = mean ? mean[i] : A(0);
        if (i + 1 < end) {
            next_dy = team.keep(dy[i + 1], width);
            next_x = team.keep(x[i + 1], width);
            next_plus = team.keep(plus[i + 1], width);
        }
        team.each(
            width, [&](int place, A dyj, A xj) { sums[place] += dyj * (xj - m) * r; }, dyi, xi);
        if (mean)
            layer_norm_backward_row(team, dx[i], dyi, plusi, xi, m, r, w, width);
        else
            rms_norm_backward_row(team, dx[i], dyi, plusi, xi, r, w, width);
    }
    if (!partial) return;
    constexpr int size = pack_count<T>();
    team.template each_pack<T>(width, [&](int i, int64_t j) {
        COEUS_UNROLL
        for (int e = 0; e < size; ++e) partial[blockIdx.x * width + j + e] = sums[i * size + e];
    });
}

void check(Tensor y, Tensor x, Tensor weight, Tensor statistic) {
    require(y.rows() == x.rows() && y.cols() == x.cols(), "norm: input and output differ in shape");
    require(!weight || weight.count() == x.cols(), "norm: the weight does not have the width of the input");
    require(statistic.count() == x.rows(), "norm: needs one statistic for each row");
    require(!y.largest || y.has_largest(), "norm: the result has one largest magnitude");
}

Grid rows_grid(int64_t rows, int64_t width) {
    return {blocks_for(rows), threads_for(width), BlockTeam::shared_bytes};
}

/// Blocks that keep rows in registers, if the operands allow it.
template <int packs, class T>
std::optional<Grid> grid_of_kept_rows(int64_t rows, int64_t width, int most,
                                      std::initializer_list<Tensor> operands) {
    constexpr int64_t of_thread = KeepingBlock<packs>::template width_of<T>(1);
    if (width % pack_count<T>() != 0 || width > most * of_thread || !in_pieces(operands)) return std::nullopt;
    return Grid{blocks_for(rows), threads_for(div_ceil(width, of_thread), most),
                KeepingBlock<packs>::shared_bytes};
}

/// Calls f(is_kept, grid) for a forward.
template <class T, class F>
void for_forward(const Tensor& y, const Tensor& x, const Tensor& weight, F&& f) {
    if (const auto grid =
            grid_of_kept_rows<kept_forward, T>(x.rows(), x.cols(), most_threads, {y, x, weight}))
        f(std::true_type(), *grid);
    else
        f(std::false_type(), rows_grid(x.rows(), x.cols()));
}

void norm_backward(Exec& exec, Tensor dx, Tensor dweight, Tensor dy, Tensor plus, Tensor x, Tensor mean,
                   Tensor rstd, Tensor weight) {
    check(dx, x, weight, rstd);
    const int64_t rows = x.rows(), width = x.cols();
    dispatch(x.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        const int64_t block = workspace::norm_block(rows);
        const auto launch_sums = [&](A* partial, int64_t blocks) {
            const auto kept =
                grid_of_kept_rows<kept_backward, T>(blocks, width, kept_threads, {dx, dy, plus, x, weight});
            Grid grid = kept ? *kept : rows_grid(blocks, width);
            if (partial && !kept) grid.shared_bytes += size_t(width) * sizeof(A);
            launch(exec, "norm_backward", grid, kept ? kept_norm_backward_kernel<T> : norm_backward_kernel<T>,
                   rows_of<T>(dx), partial, rows_of<const T>(dy), rows_of<const T>(plus), rows_of<const T>(x),
                   mean ? mean.as<const A>() : nullptr, rstd.as<const A>(),
                   weight ? weight.as<const T>() : nullptr, rows, block, width);
        };
        add_column_sums<A>(exec, dweight, rows, width, launch_sums, block);
    });
}

}  // namespace

void Cuda::rms_norm(Exec& exec, Tensor y, Tensor rstd, Tensor x, Tensor weight, double eps) {
    check(y, x, weight, rstd);
    dispatch(x.dtype, [&]<class T>(T) {
        if (y.rounded)
            return launch(exec, "rms_norm", grid_of_rounded_rows<T>(x.rows(), x.cols()),
                          rounded_rms_norm_kernel<T>, RoundedRows<T>(y), rstd.as<Acc<T>>(),
                          rows_of<const T>(x), weight.as<const T>(), x.cols(), Acc<T>(eps));
        with_largest_of(y, [&]<bool with_largest>(int32_t* bits) {
            for_forward<T>(y, x, weight, [&](auto is_kept, const Grid& grid) {
                const auto kernel = rms_norm_kernel<T, with_largest, is_kept>;
                launch(exec, "rms_norm", resident_rows(exec, kernel, grid), kernel, rows_of<T>(y),
                       rstd.as<Acc<T>>(), bits, rows_of<const T>(x), weight.as<const T>(), x.rows(), x.cols(),
                       Acc<T>(eps));
            });
        });
    });
}

void Cuda::rms_norm_backward(Exec& exec, Tensor dx, Tensor dweight, Tensor dy, Tensor plus, Tensor x,
                             Tensor rstd, Tensor weight) {
    norm_backward(exec, dx, dweight, dy, plus, x, {}, rstd, weight);
}

namespace {

constexpr int head_threads = 128, head_warps = head_threads / warp_size;

/// The warps of a block take the heads of a token in turn.
template <class T>
__global__ void head_norm_kernel(Rows<T> y, Rows<const T> x, const T* weight, int64_t heads, int64_t width,
                                 Acc<T> eps) {
    const WarpTeam team;
    const int64_t t = blockIdx.x;
    for (int64_t head = threadIdx.x / warp_size; head < heads; head += head_warps)
        rms_norm_row(team, y[t] + head * width, x[t] + head * width, weight, width, eps);
}

/// The warps of a block take the heads of its tokens in turn. Each sums its part of the weight's gradient in
/// shared memory, [warp][width].
template <class T>
__global__ void head_norm_backward_kernel(Rows<T> dx, Acc<T>* partial, Rows<const T> dy, Rows<const T> x,
                                          const T* weight, int64_t rows, int64_t heads, int64_t width,
                                          Acc<T> eps) {
    using A = Acc<T>;
    const WarpTeam team;
    const int64_t warp = threadIdx.x / warp_size,
                  begin = int64_t(blockIdx.x) * workspace::column_block * heads,
                  end = begin + workspace::column_block * heads < rows * heads
                            ? begin + workspace::column_block * heads
                            : rows * heads;
    A* const of_warps = reinterpret_cast<A*>(shared_memory());
    A* const sums = of_warps + warp * width;
    if (partial) team.each(width, [=](int64_t j) { sums[j] = 0; });
    for (int64_t i = begin + warp; i < end; i += head_warps) {
        const int64_t t = i / heads, column = i % heads * width;
        const T *const d = dy[t] + column, *const in = x[t] + column;
        const A r = rms_norm_rstd(team, in, width, eps);
        if (partial) team.each(width, [=](int64_t j) { sums[j] += load(d[j]) * load(in[j]) * r; });
        __syncwarp();  // dx may be x: all lanes have read it
        if (weight)
            rms_norm_backward_row(team, dx[t] + column, d, static_cast<const T*>(nullptr), in, r, weight,
                                  width);
        else
            rms_norm_backward_row(team, dx[t] + column, d, in, r, width);
    }
    if (!partial) return;
    __syncthreads();
    Threads(threadIdx.x, blockDim.x).each(width, [=](int64_t j) {
        A total = 0;
        for (int w = 0; w < head_warps; ++w) total += of_warps[w * width + j];
        partial[blockIdx.x * width + j] = total;
    });
}

void check_heads(Tensor y, Tensor x, Tensor weight, int64_t head_dim) {
    require(y.rows() == x.rows() && y.cols() == x.cols(), "norm: input and output differ in shape");
    require(x.cols() % head_dim == 0, "head_norm: columns are not whole heads");
    require(!weight || weight.count() == head_dim, "head_norm: the weight does not have the width of a head");
}

}  // namespace

void Cuda::head_norm(Exec& exec, Tensor y, Tensor x, Tensor weight, int64_t head_dim, double eps) {
    check_heads(y, x, weight, head_dim);
    dispatch(x.dtype, [&]<class T>(T) {
        launch(exec, "head_norm", {blocks_for(x.rows()), head_threads}, head_norm_kernel<T>, rows_of<T>(y),
               rows_of<const T>(x), weight ? weight.as<const T>() : nullptr, x.cols() / head_dim, head_dim,
               Acc<T>(eps));
    });
}

void Cuda::head_norm_backward(Exec& exec, Tensor dx, Tensor dweight, Tensor dy, Tensor x, Tensor weight,
                              int64_t head_dim, double eps) {
    check_heads(dx, x, weight, head_dim);
    dispatch(x.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        add_column_sums<A>(exec, dweight, x.rows(), head_dim, [&](A* partial, int64_t blocks) {
            launch(exec, "head_norm_backward",
                   {blocks_for(blocks), head_threads, size_t(head_warps * head_dim) * sizeof(A)},
                   head_norm_backward_kernel<T>, rows_of<T>(dx), partial, rows_of<const T>(dy),
                   rows_of<const T>(x), weight ? weight.as<const T>() : nullptr, x.rows(),
                   x.cols() / head_dim, head_dim, A(eps));
        });
    });
}

void Cuda::layer_norm(Exec& exec, Tensor y, Tensor mean, Tensor rstd, Tensor x, Tensor weight, double eps) {
    check(y, x, weight, rstd);
    dispatch(x.dtype, [&]<class T>(T) {
        const T* const w = weight ? weight.as<const T>() : nullptr;
        if (y.rounded)
            return launch(exec, "layer_norm", grid_of_rounded_rows<T>(x.rows(), x.cols()),
                          rounded_layer_norm_kernel<T>, RoundedRows<T>(y), mean.as<Acc<T>>(),
                          rstd.as<Acc<T>>(), rows_of<const T>(x), w, x.cols(), Acc<T>(eps));
        with_largest_of(y, [&]<bool with_largest>(int32_t* bits) {
            for_forward<T>(y, x, weight, [&](auto is_kept, const Grid& grid) {
                const auto kernel = layer_norm_kernel<T, with_largest, is_kept>;
                launch(exec, "layer_norm", resident_rows(exec, kernel, grid), kernel, rows_of<T>(y),
                       mean.as<Acc<T>>(), rstd.as<Acc<T>>(), bits, rows_of<const T>(x), w, x.rows(), x.cols(),
                       Acc<T>(eps));
            });
        });
    });
}

void Cuda::layer_norm_backward(Exec& exec, Tensor dx, Tensor dweight, Tensor dy, Tensor plus, Tensor x,
                               Tensor mean, Tensor rstd, Tensor weight) {
    norm_backward(exec, dx, dweight, dy, plus, x, mean, rstd, weight);
}

}  // namespace coeus::cuda
