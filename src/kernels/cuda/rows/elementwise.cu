// SPDX-License-Identifier: Apache-2.0
// Conversions, sums of tensors and zeros, element by element; RoPE; SwiGLU, GEGLU and their activations
// alone.
#include "../../rows/glu.hpp"
#include "../../rows/matrix.hpp"
#include "../cuda.hpp"
#include "../launch.hpp"
#include "../ptx/mma.hpp"
#include "../quantization/largest.hpp"
#include "../quantization/rounded.hpp"
#include "streams.hpp"

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
Grid grid_of(const Extent& e, size_t shared_bytes = 0) {
    return {dim3(blocks_for(e.rows),
                 unsigned(std::min<int64_t>(div_ceil(e.width, elements_per_block), most_blocks_across))),
            threads_for(e.width), shared_bytes};
}
/// The threads of all blocks of a row.
template <class Team = Streams>
__device__ Team row_team() {
    return {int64_t(blockIdx.y) * blockDim.x + threadIdx.x, int64_t(gridDim.y) * blockDim.x};
}

/// Calls f(row) for the rows that this block takes in turn.
template <class F>
__device__ void each_row(int64_t rows, F&& f) {
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) f(row);
}

template <class O, class T>
__global__ void cast_kernel(Rows<O> out, Rows<const T> a, int64_t rows, int64_t width) {
    each_row(rows, [=](int64_t row) {
        row_team().map(
            width, out[row], [](auto x) { return x; }, a[row]);
    });
}

template <class O, class T>
__global__ void add_kernel(Rows<O> out, Rows<const T> a, int64_t rows, int64_t width) {
    each_row(rows, [=](int64_t row) {
        row_team().map(
            width, out[row], [](auto sum, auto x) { return sum + decltype(sum)(x); }, out[row], a[row]);
    });
}

template <class T>
__global__ void zero_kernel(Rows<T> out, int64_t width) {
    row_team<Threads>().map(width, out[blockIdx.x], [] { return Acc<T>(0); });
}

template <class T>
__global__ void sum_parts_kernel(T* out, const T* parts, int64_t terms, int64_t count) {
    row_team<Threads>().each(count, [=](int64_t j) {
        Acc<T> sum = load(parts[j]);
        for (int64_t p = 1; p < terms; ++p) sum += load(parts[p * count + j]);
        out[j] = store<T>(sum);
    });
}

/// Pairs whose first elements are adjacent. Their second ones are `distance` further on or, if `together`,
/// each lies beside its first one, and all are moved at once.
template <int pairs, bool together, class T>
class Pairs {
public:
    __device__ void load_from(const T* x, int64_t distance) {
        first_ = load_pack<size>(x);
        if constexpr (!together) second_ = load_pack<size>(x + distance);
    }
    __device__ void store_rotated(T* x, int64_t distance, const Acc<T> (&angles)[2 * pairs]) {
        COEUS_UNROLL
        for (int i = 0; i < pairs; ++i) {
            T& first = first_.values[together ? 2 * i : i];
            T& second = together ? first_.values[2 * i + 1] : second_.values[i];
            Acc<T> a = load(first), b = load(second);
            rotate(a, b, angles[2 * i], angles[2 * i + 1]);
            first = store<T>(a);
            second = store<T>(b);
        }
        store_pack(x, first_);
        if constexpr (!together) store_pack(x + distance, second_);
    }

private:
    static constexpr int size = together ? 2 * pairs : pairs;
    Pack<T, size> first_, second_;
};

/// A block rotates all heads of a token. A thread keeps the angles of `pairs` pairs for several heads, and
/// loads the pairs of four heads before it stores the first ones.
template <int pairs, bool together, class T>
__global__ void rope_kernel(Rows<T> x, Rows<const Acc<T>> table, const int32_t* positions, int64_t heads,
                            RopeShape s, bool inverse) {
    using A = Acc<T>;
    const unsigned parts = unsigned(s.width / 2 / pairs), of_head = parts < blockDim.x ? parts : blockDim.x,
                   heads_at_once = blockDim.x / of_head;
    if (threadIdx.x >= heads_at_once * of_head || threadIdx.x >= heads * of_head) return;
    const bool beside = s.layout == RopeLayout::interleaved;
    const int64_t half = s.width / 2, step = beside ? 2 : 1, distance = beside ? 1 : half;
    T* const row = x[blockIdx.x] + s.first;
    const A* const angles = table[positions[blockIdx.x]];
    constexpr int size = pairs > 1 ? pack_count<A>() : 1;
    for (int64_t j = int64_t(threadIdx.x % of_head) * pairs; j < half; j += int64_t(of_head) * pairs) {
        A own[2 * pairs];
        COEUS_UNROLL
        for (int i = 0; i < 2 * pairs; i += size) {
            const Pack<A, size> pack = load_pack<size>(angles + 2 * j + i);
            COEUS_UNROLL
            for (int e = 0; e < size; ++e)
                own[i + e] = inverse && (i + e) % 2 == 1 ? -pack.values[e] : pack.values[e];
        }
        constexpr int several = 4;
        T* at = row + threadIdx.x / of_head * s.head_dim + step * j;
        const int64_t stride = heads_at_once * s.head_dim;
        int left = int(heads) - int(threadIdx.x / of_head);
        for (; left > 0; left -= several * int(heads_at_once), at += several * stride) {
            Pairs<pairs, together, T> of_heads[several];
            COEUS_UNROLL
            for (int i = 0; i < several; ++i)
                if (i * int(heads_at_once) < left) of_heads[i].load_from(at + i * stride, distance);
            COEUS_UNROLL
            for (int i = 0; i < several; ++i)
                if (i * int(heads_at_once) < left) of_heads[i].store_rotated(at + i * stride, distance, own);
        }
    }
}

/// bits: the largest magnitude of y, if with_largest.
template <Activation activation, bool with_largest, class T>
__device__ void glu(Rows<T> y, int32_t* bits, Rows<const T> gate_up, int64_t rows, int64_t width) {
    const auto team = row_team<MaybeWithLargest<Streams, with_largest>>();
    each_row(rows, [&](int64_t row) {
        const T* gate = gate_up[row];
        glu_row<activation>(team, y[row], gate, gate + width, width);
    });
    if constexpr (with_largest) raise(bits, team.largest_written().first);
}

/// y: also rounded. A block has a whole row.
template <Activation activation, class T>
__device__ void rounded_glu(const RoundedRows<T>& y, Rows<const T> gate_up, int64_t width) {
    const T* const gate = gate_up[blockIdx.x];
    y.write(blockIdx.x, width,
            [=](const auto& team, T* out) { glu_row<activation>(team, out, gate, gate + width, width); });
}

/// bits: those of both gradients, if with_largest.
template <Activation activation, bool with_largest, class T>
__device__ void glu_backward(Rows<T> dgate_up, int32_t* bits, Rows<const T> dy, Rows<const T> gate_up,
                             int64_t rows, int64_t width) {
    const auto team = row_team<MaybeWithLargest<Streams, with_largest>>();
    each_row(rows, [&](int64_t row) {
        const T* gate = gate_up[row];
        T* dgate = dgate_up[row];
        glu_backward_row<activation>(team, dgate, dgate + width, dy[row], gate, gate + width, width);
    });
    if constexpr (with_largest) {
        raise(bits, team.largest_written().first);
        raise(bits + 1, team.largest_written().second);
    }
}

// Each activation has kernels of its own names, which profiles show.
template <class T, bool with_largest>
__global__ void swiglu_kernel(Rows<T> y, int32_t* bits, Rows<const T> gate_up, int64_t rows, int64_t width) {
    glu<Activation::silu, with_largest>(y, bits, gate_up, rows, width);
}
template <class T, bool with_largest>
__global__ void geglu_kernel(Rows<T> y, int32_t* bits, Rows<const T> gate_up, int64_t rows, int64_t width) {
    glu<Activation::gelu_tanh, with_largest>(y, bits, gate_up, rows, width);
}
template <class T>
__global__ void rounded_swiglu_kernel(RoundedRows<T> y, Rows<const T> gate_up, int64_t width) {
    rounded_glu<Activation::silu>(y, gate_up, width);
}
template <class T>
__global__ void rounded_geglu_kernel(RoundedRows<T> y, Rows<const T> gate_up, int64_t width) {
    rounded_glu<Activation::gelu_tanh>(y, gate_up, width);
}
template <class T, bool with_largest>
__global__ void swiglu_backward_kernel(Rows<T> dgate_up, int32_t* bits, Rows<const T> dy,
                                       Rows<const T> gate_up, int64_t rows, int64_t width) {
    glu_backward<Activation::silu, with_largest>(dgate_up, bits, dy, gate_up, rows, width);
}
template <class T, bool with_largest>
__global__ void geglu_backward_kernel(Rows<T> dgate_up, int32_t* bits, Rows<const T> dy,
                                      Rows<const T> gate_up, int64_t rows, int64_t width) {
    glu_backward<Activation::gelu_tanh, with_largest>(dgate_up, bits, dy, gate_up, rows, width);
}

template <class T, Activation kind>
__global__ void activation_kernel(Rows<T> y, Rows<const T> x, int64_t rows, int64_t width) {
    each_row(rows, [=](int64_t row) { activation_row<kind>(row_team(), y[row], x[row], width); });
}
template <class T, Activation kind>
__global__ void activation_backward_kernel(Rows<T> dx, Rows<const T> dy, Rows<const T> x, int64_t rows,
                                           int64_t width) {
    each_row(rows, [=](int64_t row) {
        activation_backward_row<kind>(row_team(), dx[row], dy[row], x[row], width);
    });
}

}  // namespace

void Cuda::cast(Exec& exec, Tensor out, Tensor a) {
    const Extent e = extent_of(out, a);
    if (size_of(a.dtype) == 1) {
        require(out.dtype == a.dtype, "8-bit types are not converted");
        const auto kernel = cast_kernel<uint8_t, uint8_t>;
        return launch(exec, "copy", resident_rows(exec, kernel, grid_of(e)), kernel,
                      Rows<uint8_t>{static_cast<uint8_t*>(out.data), out.ld},
                      Rows<const uint8_t>{static_cast<const uint8_t*>(a.data), a.ld}, e.rows, e.width);
    }
    dispatch(out.dtype, [&]<class O>(O) {
        dispatch(a.dtype, [&]<class T>(T) {
            const auto kernel = cast_kernel<O, T>;
            launch(exec, "cast", resident_rows(exec, kernel, grid_of(e)), kernel, rows_of<O>(out),
                   rows_of<const T>(a), e.rows, e.width);
        });
    });
}

void Cuda::add(Exec& exec, Tensor out, Tensor a) {
    const Extent e = extent_of(out, a);
    dispatch(out.dtype, [&]<class O>(O) {
        dispatch(a.dtype, [&]<class T>(T) {
            const auto kernel = add_kernel<O, T>;
            launch(exec, "add", resident_rows(exec, kernel, grid_of(e)), kernel, rows_of<O>(out),
                   rows_of<const T>(a), e.rows, e.width);
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
    if (s.width == 0) return;
    dispatch(x.dtype, [&]<class T>(T) {
        const auto rotate = [&]<int pairs, bool together>() {
            launch(exec, "rope", {blocks_for(x.rows()), 128}, rope_kernel<pairs, together, T>, rows_of<T>(x),
                   rows_of<const Acc<T>>(table), positions.as<const int32_t>(), x.cols() / s.head_dim, s,
                   inverse);
        };
        constexpr int size = pack_count<T>();
        const bool in_packs = in_pieces({x, table}) && s.first % size == 0 && s.head_dim % size == 0;
        if (in_packs && s.layout == RopeLayout::interleaved && s.width % size == 0)
            rotate.template operator()<size / 2, true>();
        else if (in_packs && s.layout == RopeLayout::half_split && s.width % (2 * size) == 0)
            rotate.template operator()<size, false>();
        else
            rotate.template operator()<1, false>();
    });
}

namespace {

/// The kernels of one activation for elements of type T.
template <Activation activation, class T>
constexpr auto rounded_glu_kernel =
    activation == Activation::silu ? rounded_swiglu_kernel<T> : rounded_geglu_kernel<T>;
template <Activation activation, class T, bool with_largest>
constexpr auto glu_kernel =
    activation == Activation::silu ? swiglu_kernel<T, with_largest> : geglu_kernel<T, with_largest>;
template <Activation activation, class T, bool with_largest>
constexpr auto glu_backward_kernel = activation == Activation::silu ? swiglu_backward_kernel<T, with_largest>
                                                                    : geglu_backward_kernel<T, with_largest>;

template <Activation activation>
void launch_glu(Exec& exec, const char* name, Tensor y, Tensor gate_up) {
    const int64_t width = y.cols();
    require(gate_up.cols() == 2 * width && gate_up.rows() == y.rows(), "gated unit: gate_up is not [T, 2F]");
    require(!y.largest || y.largest_cols == width, "gated unit: y has one largest magnitude");
    dispatch(y.dtype, [&]<class T>(T) {
        if (y.rounded)
            return launch(exec, name, grid_of_rounded_rows<T>(y.rows(), width),
                          rounded_glu_kernel<activation, T>, RoundedRows<T>(y), rows_of<const T>(gate_up),
                          width);
        with_largest_of(y, [&]<bool with_largest>(int32_t* bits) {
            const auto kernel = glu_kernel<activation, T, with_largest>;
            launch(exec, name,
                   resident_rows(exec, kernel, grid_of({y.rows(), width}, bytes_for<with_largest>)), kernel,
                   rows_of<T>(y), bits, rows_of<const T>(gate_up), y.rows(), width);
        });
    });
}

template <Activation activation>
void launch_glu_backward(Exec& exec, const char* name, Tensor dgate_up, Tensor dy, Tensor gate_up) {
    const int64_t width = dy.cols();
    require(gate_up.cols() == 2 * width && gate_up.rows() == dy.rows() && dgate_up.cols() == 2 * width,
            "gated unit: gate_up is not [T, 2F]");
    require(!dgate_up.largest || dgate_up.largest_cols == width,
            "gated unit: dgate_up has two largest magnitudes");
    dispatch(dy.dtype, [&]<class T>(T) {
        with_largest_of(dgate_up, [&]<bool with_largest>(int32_t* bits) {
            const auto kernel = glu_backward_kernel<activation, T, with_largest>;
            launch(exec, name,
                   resident_rows(exec, kernel, grid_of({dy.rows(), width}, bytes_for<with_largest>)), kernel,
                   rows_of<T>(dgate_up), bits, rows_of<const T>(dy), rows_of<const T>(gate_up), dy.rows(),
                   width);
        });
    });
}

}  // namespace

void Cuda::activation(Exec& exec, Tensor y, Tensor x, Activation kind) {
    const Extent e = extent_of(y, x);
    dispatch(y.dtype, [&]<class T>(T) {
        const auto kernel = kind == Activation::silu ? activation_kernel<T, Activation::silu>
                                                     : activation_kernel<T, Activation::gelu_tanh>;
        launch(exec, "activation", resident_rows(exec, kernel, grid_of(e)), kernel, rows_of<T>(y),
               rows_of<const T>(x), e.rows, e.width);
    });
}

void Cuda::activation_backward(Exec& exec, Tensor dx, Tensor dy, Tensor x, Activation kind) {
    const Extent of_dx = extent_of(dx, x), of_dy = extent_of(dy, x),
                 e = of_dx.rows > of_dy.rows ? of_dx : of_dy;
    dispatch(x.dtype, [&]<class T>(T) {
        const auto kernel = kind == Activation::silu ? activation_backward_kernel<T, Activation::silu>
                                                     : activation_backward_kernel<T, Activation::gelu_tanh>;
        launch(exec, "activation_backward", resident_rows(exec, kernel, grid_of(e)), kernel, rows_of<T>(dx),
               rows_of<const T>(dy), rows_of<const T>(x), e.rows, e.width);
    });
}

void Cuda::swiglu(Exec& exec, Tensor y, Tensor gate_up) {
    launch_glu<Activation::silu>(exec, "swiglu", y, gate_up);
}

void Cuda::swiglu_backward(Exec& exec, Tensor dgate_up, Tensor dy, Tensor gate_up) {
    launch_glu_backward<Activation::silu>(exec, "swiglu_backward", dgate_up, dy, gate_up);
}

void Cuda::geglu(Exec& exec, Tensor y, Tensor gate_up) {
    launch_glu<Activation::gelu_tanh>(exec, "geglu", y, gate_up);
}

void Cuda::geglu_backward(Exec& exec, Tensor dgate_up, Tensor dy, Tensor gate_up) {
    launch_glu_backward<Activation::gelu_tanh>(exec, "geglu_backward", dgate_up, dy, gate_up);
}

}  // namespace coeus::cuda
