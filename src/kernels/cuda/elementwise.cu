// SPDX-License-Identifier: Apache-2.0
// Conversions, sums of tensors and zeros, element by element; RoPE; SwiGLU.
#include "../rows/matrix.hpp"
#include "../rows/rope.hpp"
#include "../rows/swiglu.hpp"
#include "cuda.hpp"
#include "launch.hpp"
#include "team.hpp"

namespace coeus::cuda {

namespace {

constexpr int64_t elements_per_block = 256 * 16;

/// The shape of the work: dense tensors are one row, others have their own rows.
struct Extent {
    int64_t rows, width;
};
Extent extent_of(const Tensor& out, const Tensor& a) {
    require(out.count() == a.count() && out.rows() == a.rows(),
            "tensors of an elementwise kernel differ in shape");
    return out.dense() && a.dense() ? Extent{1, out.count()} : Extent{out.rows(), out.cols()};
}
/// Blocks (row, part of the columns). Rows come first, since a grid can have far more blocks in that
/// direction.
Grid grid_of(const Extent& e) {
    return {dim3(blocks_for(e.rows),
                 unsigned(std::min<int64_t>(div_ceil(e.width, elements_per_block), most_blocks_across))),
            threads_for(e.width)};
}
/// The threads of all blocks of a row.
__device__ Threads row_team() {
    return {int64_t(blockIdx.y) * blockDim.x + threadIdx.x, int64_t(gridDim.y) * blockDim.x};
}

template <class O, class T>
__global__ void cast_kernel(Rows<O> out, Rows<const T> a, int64_t width) {
    row_team().map(
        width, out[blockIdx.x], [](auto x) { return x; }, a[blockIdx.x]);
}

template <class O, class T>
__global__ void add_kernel(Rows<O> out, Rows<const T> a, int64_t width) {
    O* const row = out[blockIdx.x];
    row_team().map(
        width, row, [](auto sum, auto x) { return sum + decltype(sum)(x); }, row, a[blockIdx.x]);
}

template <class T>
__global__ void zero_kernel(Rows<T> out, int64_t width) {
    row_team().map(width, out[blockIdx.x], [] { return Acc<T>(0); });
}

template <class T>
__global__ void sum_parts_kernel(T* out, const T* parts, int64_t terms, int64_t count) {
    row_team().each(count, [=](int64_t j) {
        Acc<T> sum = load(parts[j]);
        for (int64_t p = 1; p < terms; ++p) sum += load(parts[p * count + j]);
        out[j] = store<T>(sum);
    });
}

/// The warps of a block take the heads in turn.
template <class T>
__global__ void rope_kernel(Rows<T> x, Rows<const Acc<T>> table, const int32_t* positions, int64_t heads,
                            RopeShape s, bool inverse) {
    const WarpTeam team;
    const int64_t row = blockIdx.x, warps = blockDim.x / warp_size;
    for (int64_t head = threadIdx.x / warp_size; head < heads; head += warps)
        rope_row(team, x[row] + head * s.head_dim + s.first, table[positions[row]], s.width, s.layout,
                 inverse);
}

template <class T>
__global__ void swiglu_kernel(Rows<T> y, Rows<const T> gate_up, int64_t width) {
    const T* gate = gate_up[blockIdx.x];
    swiglu_row(row_team(), y[blockIdx.x], gate, gate + width, width);
}

template <class T>
__global__ void swiglu_backward_kernel(Rows<T> dgate_up, Rows<const T> dy, Rows<const T> gate_up,
                                       int64_t width) {
    const T* gate = gate_up[blockIdx.x];
    T* dgate = dgate_up[blockIdx.x];
    swiglu_backward_row(row_team(), dgate, dgate + width, dy[blockIdx.x], gate, gate + width, width);
}

}  // namespace

void Cuda::cast(Exec& exec, Tensor out, Tensor a) {
    const Extent e = extent_of(out, a);
    if (size_of(a.dtype) == 1) {
        require(out.dtype == a.dtype, "8-bit types are not converted");
        return launch(exec, "copy", grid_of(e), cast_kernel<uint8_t, uint8_t>,
                      Rows<uint8_t>{static_cast<uint8_t*>(out.data), out.ld},
                      Rows<const uint8_t>{static_cast<const uint8_t*>(a.data), a.ld}, e.width);
    }
    dispatch(out.dtype, [&]<class O>(O) {
        dispatch(a.dtype, [&]<class T>(T) {
            launch(exec, "cast", grid_of(e), cast_kernel<O, T>, rows_of<O>(out), rows_of<const T>(a),
                   e.width);
        });
    });
}

void Cuda::add(Exec& exec, Tensor out, Tensor a) {
    const Extent e = extent_of(out, a);
    dispatch(out.dtype, [&]<class O>(O) {
        dispatch(a.dtype, [&]<class T>(T) {
            launch(exec, "add", grid_of(e), add_kernel<O, T>, rows_of<O>(out), rows_of<const T>(a), e.width);
        });
    });
}

void Cuda::sum_parts(Exec& exec, Tensor out, Tensor parts) {
    const int64_t count = out.count();
    require(
        out.dense() && parts.dense() && out.dtype == parts.dtype && count > 0 && parts.count() % count == 0,
        "parts to sum must be dense and have the sum's shape and type");
    dispatch(out.dtype, [&]<class T>(T) {
        launch(exec, "sum_parts", grid_of({1, count}), sum_parts_kernel<T>, out.as<T>(), parts.as<const T>(),
               parts.count() / count, count);
    });
}

void Cuda::zero(Exec& exec, Tensor out) {
    if (out.dense()) {
        COEUS_CHECK_CUDA(cudaMemsetAsync(out.data, 0, size_t(out.bytes()), state_of(exec).stream));
        return;
    }
    dispatch(out.dtype, [&]<class T>(T) {
        launch(exec, "zero", grid_of({out.rows(), out.cols()}), zero_kernel<T>, rows_of<T>(out), out.cols());
    });
}

void Cuda::rope(Exec& exec, Tensor x, Tensor table, Tensor positions, const RopeShape& s, bool inverse) {
    require(s.width % 2 == 0 && s.first + s.width <= s.head_dim && x.cols() % s.head_dim == 0,
            "rope: columns are not whole heads of pairs");
    require(table.cols() == s.width && positions.count() == x.rows(),
            "rope: table or positions have the wrong shape");
    dispatch(x.dtype, [&]<class T>(T) {
        launch(exec, "rope", {blocks_for(x.rows()), 128}, rope_kernel<T>, rows_of<T>(x),
               rows_of<const Acc<T>>(table), positions.as<const int32_t>(), x.cols() / s.head_dim, s,
               inverse);
    });
}

void Cuda::swiglu(Exec& exec, Tensor y, Tensor gate_up) {
    const int64_t width = y.cols();
    require(gate_up.cols() == 2 * width && gate_up.rows() == y.rows(), "swiglu: gate_up is not [T, 2F]");
    dispatch(y.dtype, [&]<class T>(T) {
        launch(exec, "swiglu", grid_of({y.rows(), width}), swiglu_kernel<T>, rows_of<T>(y),
               rows_of<const T>(gate_up), width);
    });
}

void Cuda::swiglu_backward(Exec& exec, Tensor dgate_up, Tensor dy, Tensor gate_up) {
    const int64_t width = dy.cols();
    require(gate_up.cols() == 2 * width && gate_up.rows() == dy.rows() && dgate_up.cols() == 2 * width,
            "swiglu: gate_up is not [T, 2F]");
    dispatch(dy.dtype, [&]<class T>(T) {
        launch(exec, "swiglu_backward", grid_of({dy.rows(), width}), swiglu_backward_kernel<T>,
               rows_of<T>(dgate_up), rows_of<const T>(dy), rows_of<const T>(gate_up), width);
    });
}

}  // namespace coeus::cuda
