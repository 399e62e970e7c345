// SPDX-License-Identifier: Apache-2.0
// Modulation of rows by what belongs to their sequences, and the squared error of rows. In the backward of
// modulation a thread has some columns of a block of rows, all of one sequence, and their sums in registers;
// another kernel adds those of a sequence's blocks in order. So there are no atomics.
#include "../../rows/matrix.hpp"
#include "../../rows/modulate.hpp"
#include "../cuda.hpp"
#include "../launch.hpp"
#include "../ptx/mma.hpp"
#include "../workspace.hpp"
#include "team.hpp"

#include <algorithm>
#include <type_traits>

namespace coeus::cuda {

namespace {

using workspace::modulate_block;

/// A row of a tensor that is there.
template <class T>
__device__ T* row_at(const Rows<T>& rows, int64_t i) {
    return rows.data + i * rows.ld;
}

/// A block for each row.
template <class T>
__global__ void modulate_kernel(Rows<T> y, Rows<const T> plus, Rows<const T> x, Rows<const T> shift,
                                Rows<const T> scale, SequenceRows sequences, int64_t width, Acc<T> base) {
    const int64_t row = blockIdx.x, sequence = sequences.sequence_of(row);
    modulate_row(Threads(threadIdx.x, blockDim.x), y[row], plus[row], x[row], shift[sequence],
                 scale[sequence], width, base);
}

/// partial[block of rows][number][width]: sums of the scale's gradient, then those of the shift's if
/// with_shift. `blocks`: those of each sequence. A thread has packs of `size` columns.
template <class T, int size, bool with_shift>
__global__ void modulate_backward_kernel(Rows<T> dx, Acc<T>* partial, Rows<const T> dy, Rows<const T> x,
                                         Rows<const T> scale, SequenceRows sequences, int64_t rows,
                                         int64_t blocks, int64_t width, Acc<T> base) {
    using A = Acc<T>;
    constexpr int several = 4;  // rows whose loads begin before the first store
    const int64_t sequence = blockIdx.x / blocks, last = sequences.begin_of(sequence + 1, rows),
                  begin = sequences.begin_of(sequence, rows) + blockIdx.x % blocks * modulate_block,
                  end = begin + modulate_block < last ? begin + modulate_block : last;
    A* const to = partial + int64_t(blockIdx.x) * (with_shift ? 2 : 1) * width;
    for (int64_t j = (int64_t(blockIdx.y) * blockDim.x + threadIdx.x) * size; j < width;
         j += int64_t(gridDim.y) * blockDim.x * size) {
        alignas(16) A of_scale[size] = {}, of_shift[size] = {};
        A factors[size];
        const Pack<T, size> scales = load_pack<size>(row_at(scale, sequence) + j);
        COEUS_UNROLL
        for (int e = 0; e < size; ++e) factors[e] = base + load(scales.values[e]);
        const auto take = [&]<int count>(std::integral_constant<int, count>, int64_t i) {
            Pack<T, size> d[count], in[count];
            COEUS_UNROLL
            for (int r = 0; r < count; ++r) {
                d[r] = load_pack<size>(row_at(dy, i + r) + j);
                in[r] = load_pack<size>(row_at(x, i + r) + j);
            }
            COEUS_UNROLL
            for (int r = 0; r < count; ++r) {
                COEUS_UNROLL
                for (int e = 0; e < size; ++e)
                    d[r].values[e] = store<T>(modulated_gradient(load(d[r].values[e]), load(in[r].values[e]),
                                                                 factors[e], of_scale[e], of_shift[e]));
                if constexpr (size > 1)
                    store_pack_at_once(row_at(dx, i + r) + j, d[r]);
                else
                    store_pack(row_at(dx, i + r) + j, d[r]);
            }
        };
        int64_t i = begin;
        COEUS_NO_UNROLL
        for (; i + several <= end; i += several) take(std::integral_constant<int, several>(), i);
        COEUS_NO_UNROLL
        for (; i < end; ++i) take(std::integral_constant<int, 1>(), i);
        constexpr int piece = size > 1 ? pack_count<A>() : 1;
        COEUS_UNROLL
        for (int e = 0; e < size; e += piece) {
            store_pack(to + j + e, load_pack<piece>(of_scale + e));
            if constexpr (with_shift) store_pack(to + width + j + e, load_pack<piece>(of_shift + e));
        }
    }
}

/// A thread for each column of a sequence's gradients. `parts`: the blocks of a row of columns.
template <class A>
__global__ void add_sequence_sums_kernel(Rows<A> dscale, Rows<A> dshift, const A* partial, int64_t blocks,
                                         int64_t width, int64_t parts) {
    const int64_t sequence = blockIdx.x / parts, j = blockIdx.x % parts * blockDim.x + threadIdx.x,
                  distance = gridDim.y * width;
    if (j >= width) return;
    const A* const from = partial + sequence * blocks * distance + blockIdx.y * width + j;
    A total = 0;
    for (int64_t block = 0; block < blocks; ++block) total += from[block * distance];
    (blockIdx.y == 0 ? dscale : dshift)[sequence][j] = total;
}

constexpr int loss_threads = 128, loss_warps = loss_threads / warp_size;

/// A warp for each row.
template <class T>
__global__ void squared_error_kernel(Acc<T>* losses, Rows<T> dprediction, Rows<const T> prediction,
                                     Rows<const Acc<T>> target, const Acc<T>* weights, SequenceRows sequences,
                                     int64_t rows, int64_t width, const StepScalars* scalars) {
    using A = Acc<T>;
    const WarpTeam team;
    const int64_t row = int64_t(blockIdx.x) * loss_warps + threadIdx.x / warp_size;
    if (row >= rows) return;
    const A w = A(double(weights[sequences.sequence_of(row)]) * scalars->loss_scale);
    const A loss = squared_error_row(team, dprediction[row], prediction[row], target[row], width, w);
    if (team.first()) losses[row] = loss;
}

}  // namespace

void Cuda::modulate(Exec& exec, Tensor y, Tensor plus, Tensor x, Tensor shift, Tensor scale,
                    const SequenceRows& rows, double base) {
    coeus::rows::check_modulate(y, plus, x, shift, scale, rows);
    dispatch(x.dtype, [&]<class T>(T) {
        launch(exec, "modulate", {blocks_for(x.rows()), threads_for(x.cols())}, modulate_kernel<T>,
               rows_of<T>(y), rows_of<const T>(plus), rows_of<const T>(x), rows_of<const T>(shift),
               rows_of<const T>(scale), rows, x.cols(), Acc<T>(base));
    });
}

void Cuda::modulate_backward(Exec& exec, Tensor dx, Tensor dshift, Tensor dscale, Tensor dy, Tensor x,
                             Tensor scale, const SequenceRows& rows, double base) {
    coeus::rows::check_modulate(dx, dy, x, dshift, scale, rows);
    require(dscale.shape == scale.shape, "modulate: operands differ in shape");
    const int64_t n = x.rows(), width = x.cols(), sequences = scale.rows(), sums = dshift ? 2 : 1,
                  blocks = workspace::blocks_of_sequence(rows, n);
    const Scope scope(exec.workspace);
    dispatch(x.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        A* const partial =
            exec.workspace.alloc(dscale.dtype, {sequences * blocks * sums, width}).template as<A>();
        const auto launch_sums = [&]<int size, bool with_shift>() {
            const int64_t threads = div_ceil(width, size);
            const Grid grid = {dim3(blocks_for(sequences * blocks),
                                    unsigned(std::min<int64_t>(div_ceil(threads, 128), most_blocks_across))),
                               threads_for(threads, 128)};
            launch(exec, "modulate_backward", grid, modulate_backward_kernel<T, size, with_shift>,
                   rows_of<T>(dx), partial, rows_of<const T>(dy), rows_of<const T>(x),
                   rows_of<const T>(scale), rows, n, blocks, width, A(base));
        };
        constexpr int size = pack_count<T>();
        const bool packed = in_pieces({dx, dy, x, scale}) && width % size == 0;
        if (dshift)
            packed ? launch_sums.template operator()<size, true>()
                   : launch_sums.template operator()<1, true>();
        else
            packed ? launch_sums.template operator()<size, false>()
                   : launch_sums.template operator()<1, false>();
        const int64_t parts = div_ceil(width, 256);
        launch(exec, "add_sequence_sums", {dim3(blocks_for(sequences * parts), unsigned(sums)), 256},
               add_sequence_sums_kernel<A>, rows_of<A>(dscale), rows_of<A>(dshift), partial, blocks, width,
               parts);
    });
}

void Cuda::squared_error(Exec& exec, Tensor losses, Tensor dprediction, Tensor prediction, Tensor target,
                         Tensor weights, const SequenceRows& rows, const StepScalars& scalars) {
    const int64_t n = prediction.rows();
    coeus::rows::check_squared_error(losses, dprediction, prediction, target, weights, rows);
    dispatch(prediction.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        launch(exec, "squared_error", {blocks_for(div_ceil(n, loss_warps)), loss_threads},
               squared_error_kernel<T>, losses.as<A>(), rows_of<T>(dprediction), rows_of<const T>(prediction),
               rows_of<const A>(target), weights.as<const A>(), rows, n, prediction.cols(), &scalars);
    });
}

}  // namespace coeus::cuda
