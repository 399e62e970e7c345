// SPDX-License-Identifier: Apache-2.0
// Biases and activations of rows that are grouped by expert. There is a block for each row of the buffer; it
// returns at once if its row is in no group. Activations may have no groups: then all rows are meant.
#include "../../rows/gate.hpp"
#include "../cuda.hpp"
#include "groups.hpp"

namespace coeus::cuda {

namespace {

template <class T>
__global__ void add_group_bias_kernel(Rows<T> y, Rows<const T> bias, const Acc<T>* scale, DeviceGroups groups,
                                      int64_t width) {
    using A = Acc<T>;
    const PlaceInGroup at = groups.of_row(blockIdx.x);
    if (at.count <= 0) return;
    const A factor = scale ? scale[at.row] : A(1);
    T* const row = y[at.row];
    Threads(threadIdx.x, blockDim.x)
        .map(
            width, row, [=](A a, A b) { return a + factor * b; }, row, bias[at.group]);
}

constexpr int sum_warps = 8;

/// Block (32 columns, group). A warp adds every eighth row, then one warp adds their sums in order.
template <class T>
__global__ void group_bias_sums_kernel(Rows<Acc<T>> dbias, Rows<const T> dy, const Acc<T>* scale,
                                       DeviceGroups groups, int64_t width) {
    using A = Acc<T>;
    A* const sums = reinterpret_cast<A*>(shared_memory());
    const int warp = int(threadIdx.x) / warp_size, lane = int(threadIdx.x) % warp_size;
    const int64_t group = blockIdx.y, column = int64_t(blockIdx.x) * warp_size + lane;
    const PlaceInGroup at = groups.place(group, 0);
    A sum = 0;
    if (column < width)
        for (int64_t i = at.row + warp; i < at.row + at.count; i += sum_warps)
            sum += (scale ? scale[i] : A(1)) * load(dy[i][column]);
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (warp > 0 || column >= width) return;
    for (int other = 1; other < sum_warps; ++other) sum += sums[other * warp_size + lane];
    dbias[group][column] += sum;
}

template <class T>
__global__ void group_bias_dots_kernel(Acc<T>* dscale, Rows<const T> dy, Rows<const T> bias,
                                       DeviceGroups groups, int64_t width) {
    using A = Acc<T>;
    const BlockTeam team(shared_memory());
    const PlaceInGroup at = groups.of_row(blockIdx.x);
    if (at.count <= 0) return;
    const A dot = team.sum<A>(
        width, [](A a, A b) { return a * b; }, dy[at.row], bias[at.group]);
    if (team.first()) dscale[at.row] = dot;
}

template <Activation activation, class T>
__device__ void gate_of_block(Rows<T> y, Rows<const T> gate_up, const Acc<T>* scale,
                              const DeviceGroups& groups, int64_t width, const Gate& gate) {
    const PlaceInGroup at = groups.of_row(blockIdx.x);
    if (at.padded <= 0) return;
    gate_row<activation>(Threads(threadIdx.x, blockDim.x), y[at.row], gate_up[at.row], width,
                         scale ? scale[at.row] : Acc<T>(1), gate);
}

template <Activation activation, class T>
__device__ void gate_backward_of_block(Rows<T> dgate_up, Acc<T>* dscale, Rows<T> y, Rows<const T> dy,
                                       Rows<const T> gate_up, const Acc<T>* scale, const DeviceGroups& groups,
                                       int64_t width, const Gate& gate) {
    const BlockTeam team(shared_memory());
    const PlaceInGroup at = groups.of_row(blockIdx.x);
    if (at.padded <= 0) return;
    const Acc<T> factor = scale ? scale[at.row] : Acc<T>(1);
    if (dscale) {
        const Acc<T> dot = gate_dot_row<activation>(team, dy[at.row], gate_up[at.row], width, factor, gate);
        if (team.first()) dscale[at.row] = dot;
    }
    gate_backward_row<activation>(team, dgate_up[at.row], y[at.row], dy[at.row], gate_up[at.row], width,
                                  factor, gate);
}

// Each activation has kernels of its own names: its registers are not those of the other.
template <class T>
__global__ void gate_kernel(Rows<T> y, Rows<const T> gate_up, const Acc<T>* scale, DeviceGroups groups,
                            int64_t width, Gate gate) {
    gate_of_block<Activation::silu>(y, gate_up, scale, groups, width, gate);
}
template <class T>
__global__ void gelu_gate_kernel(Rows<T> y, Rows<const T> gate_up, const Acc<T>* scale, DeviceGroups groups,
                                 int64_t width, Gate gate) {
    gate_of_block<Activation::gelu_tanh>(y, gate_up, scale, groups, width, gate);
}
template <class T>
__global__ void gate_backward_kernel(Rows<T> dgate_up, Acc<T>* dscale, Rows<T> y, Rows<const T> dy,
                                     Rows<const T> gate_up, const Acc<T>* scale, DeviceGroups groups,
                                     int64_t width, Gate gate) {
    gate_backward_of_block<Activation::silu>(dgate_up, dscale, y, dy, gate_up, scale, groups, width, gate);
}
template <class T>
__global__ void gelu_gate_backward_kernel(Rows<T> dgate_up, Acc<T>* dscale, Rows<T> y, Rows<const T> dy,
                                          Rows<const T> gate_up, const Acc<T>* scale, DeviceGroups groups,
                                          int64_t width, Gate gate) {
    gate_backward_of_block<Activation::gelu_tanh>(dgate_up, dscale, y, dy, gate_up, scale, groups, width,
                                                  gate);
}

/// The elements of a vector that may be absent.
template <class T>
T* optional(const Tensor& t) {
    return t ? t.as<T>() : nullptr;
}

Grid rows_grid(int64_t rows, int64_t width) {
    return {blocks_for(rows), threads_for(width), BlockTeam::shared_bytes};
}

}  // namespace

void Cuda::add_group_bias(Exec& exec, Tensor y, Tensor bias, Tensor scale, const Groups& groups) {
    require(bias.rows() == groups.number() && bias.cols() == y.cols(), "add_group_bias: shapes do not fit");
    dispatch(y.dtype, [&]<class T>(T) {
        launch(exec, "add_group_bias", rows_grid(y.rows(), y.cols()), add_group_bias_kernel<T>, rows_of<T>(y),
               rows_of<const T>(bias), optional<const Acc<T>>(scale), device_groups(groups), y.cols());
    });
}

void Cuda::add_group_bias_backward(Exec& exec, Tensor dbias, Tensor dscale, Tensor dy, Tensor bias,
                                   Tensor scale, const Groups& groups) {
    const int64_t width = dy.cols();
    require(bias.rows() == groups.number() && bias.cols() == width && (!dbias || dbias.shape == bias.shape),
            "add_group_bias: shapes do not fit");
    const DeviceGroups all = device_groups(groups);
    dispatch(dy.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        if (dscale)
            launch(exec, "group_bias_dots", rows_grid(dy.rows(), width), group_bias_dots_kernel<T>,
                   dscale.as<A>(), rows_of<const T>(dy), rows_of<const T>(bias), all, width);
        if (dbias)
            launch(exec, "group_bias_sums",
                   {dim3(blocks_for(div_ceil(width, warp_size)), blocks_for(groups.number())),
                    sum_warps * warp_size, sum_warps * warp_size * sizeof(A)},
                   group_bias_sums_kernel<T>, rows_of<A>(dbias), rows_of<const T>(dy),
                   optional<const A>(scale), all, width);
    });
}

void Cuda::gate(Exec& exec, Tensor y, Tensor gate_up, Tensor scale, const Groups& groups, const Gate& o) {
    const int64_t width = y.cols();
    require(gate_up.cols() == 2 * width && gate_up.rows() == y.rows(), "gate: gate_up is not [rows, 2F]");
    dispatch(y.dtype, [&]<class T>(T) {
        const auto kernel = o.activation == Activation::silu ? gate_kernel<T> : gelu_gate_kernel<T>;
        launch(exec, "gate", rows_grid(y.rows(), width), kernel, rows_of<T>(y), rows_of<const T>(gate_up),
               optional<const Acc<T>>(scale), device_groups(groups), width, o);
    });
}

void Cuda::gate_backward(Exec& exec, Tensor dgate_up, Tensor dscale, Tensor y, Tensor dy, Tensor gate_up,
                         Tensor scale, const Groups& groups, const Gate& o) {
    const int64_t width = dy.cols();
    require(gate_up.cols() == 2 * width && gate_up.rows() == dy.rows() && dgate_up.shape == gate_up.shape,
            "gate: gate_up is not [rows, 2F]");
    dispatch(dy.dtype, [&]<class T>(T) {
        const auto kernel =
            o.activation == Activation::silu ? gate_backward_kernel<T> : gelu_gate_backward_kernel<T>;
        launch(exec, "gate_backward", rows_grid(dy.rows(), width), kernel, rows_of<T>(dgate_up),
               optional<Acc<T>>(dscale), rows_of<T>(y), rows_of<const T>(dy), rows_of<const T>(gate_up),
               optional<const Acc<T>>(scale), device_groups(groups), width, o);
    });
}

}  // namespace coeus::cuda
