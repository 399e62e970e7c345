// SPDX-License-Identifier: Apache-2.0
// Kernels of attention layers around attention itself: sinks, the keys and values of latent attention, the
// scaling of queries by their position, and biases.
#include "../../rows/heads.hpp"
#include "../../rows/matrix.hpp"
#include "../cuda.hpp"
#include "column_sums.hpp"

namespace coeus::cuda {

namespace {

constexpr int head_threads = 128, head_warps = head_threads / warp_size;

/// A block for each token, whose warps take the heads in turn.
template <class O, class T>
__global__ void attention_sink_kernel(Rows<O> out, Acc<T>* lse, const T* sinks, int64_t tokens, int64_t heads,
                                      int64_t width) {
    const WarpTeam team;
    const int64_t t = blockIdx.x;
    for (int64_t head = threadIdx.x / warp_size; head < heads; head += head_warps) {
        Acc<T>& own = lse[head * tokens + t];
        const Acc<T> total =
            attention_sink_row(team, out[t] + head * width, width, Acc<T>(own), load(sinks[head]));
        __syncwarp();  // all lanes have read the old value
        if (team.first()) own = total;
    }
}

/// A block for several tokens, whose warps take the heads in turn. partial[block][head].
template <class T>
__global__ void attention_sink_backward_kernel(Acc<T>* partial, Rows<const T> dout, Rows<const T> out,
                                               const Acc<T>* lse, const T* sinks, int64_t tokens,
                                               int64_t heads, int64_t width) {
    const WarpTeam team;
    const int64_t begin = int64_t(blockIdx.x) * workspace::column_block,
                  end = begin + workspace::column_block < tokens ? begin + workspace::column_block : tokens;
    for (int64_t head = threadIdx.x / warp_size; head < heads; head += head_warps) {
        Acc<T> sum = 0;
        for (int64_t t = begin; t < end; ++t)
            sum += attention_sink_gradient(team, dout[t] + head * width, out[t] + head * width, width,
                                           Acc<T>(lse[head * tokens + t]), load(sinks[head]));
        if (team.first()) partial[blockIdx.x * heads + head] = sum;
    }
}

/// A block for each token.
template <class T>
__global__ void latent_keys_kernel(Rows<T> k, Rows<T> v, Rows<const T> kv, Rows<const T> pe, LatentShape s) {
    const int64_t t = blockIdx.x, key = s.nope + s.rope, both = s.nope + s.value;
    const Threads team(threadIdx.x, blockDim.x);
    const T *const from = kv[t], *const shared = pe[t];
    T *const keys = k[t], *const values = v[t];
    team.each(s.heads * key, [=](int64_t i) {
        const int64_t h = i / key, j = i % key;
        keys[i] = j < s.nope ? from[h * both + j] : shared[j - s.nope];
    });
    team.each(s.heads * s.value,
              [=](int64_t i) { values[i] = from[i / s.value * both + s.nope + i % s.value]; });
}

template <class T>
__global__ void latent_keys_backward_kernel(Rows<T> dkv, Rows<T> dpe, Rows<const T> dk, Rows<const T> dv,
                                            LatentShape s) {
    const int64_t t = blockIdx.x, key = s.nope + s.rope, both = s.nope + s.value;
    const Threads team(threadIdx.x, blockDim.x);
    const T *const keys = dk[t], *const values = dv[t];
    T *const to = dkv[t], *const shared = dpe[t];
    team.each(s.heads * both, [=](int64_t i) {
        const int64_t h = i / both, j = i % both;
        to[i] = j < s.nope ? keys[h * key + j] : values[h * s.value + j - s.nope];
    });
    team.each(s.rope, [=](int64_t j) {
        Acc<T> sum = 0;
        for (int64_t h = 0; h < s.heads; ++h) sum += load(keys[h * key + s.nope + j]);
        shared[j] = store<T>(sum);
    });
}

/// A block for each row.
template <class T>
__global__ void scale_rows_kernel(Rows<T> x, const Acc<T>* factors, const int32_t* positions, int64_t width) {
    using A = Acc<T>;
    T* const row = x[blockIdx.x];
    const A factor = factors[positions[blockIdx.x]];
    Threads(threadIdx.x, blockDim.x)
        .map(
            width, row, [=](A a) { return factor * a; }, row);
}

template <class Y, class T>
__global__ void add_bias_kernel(Rows<Y> y, const T* bias, int64_t width) {
    using A = Acc<T>;
    Y* const row = y[blockIdx.x];
    Threads(threadIdx.x, blockDim.x)
        .map(
            width, row, [](A a, A b) { return a + b; }, row, bias);
}

/// A block for several rows.
template <class T>
__global__ void add_bias_backward_kernel(Acc<T>* partial, Rows<const T> dy, int64_t rows, int64_t width) {
    const int64_t begin = int64_t(blockIdx.x) * workspace::column_block,
                  end = begin + workspace::column_block < rows ? begin + workspace::column_block : rows;
    Threads(threadIdx.x, blockDim.x).each(width, [=](int64_t j) {
        Acc<T> sum = 0;
        for (int64_t i = begin; i < end; ++i) sum += load(dy[i][j]);
        partial[blockIdx.x * width + j] = sum;
    });
}

void check_sinks(Tensor out, Tensor lse, Tensor sinks) {
    require(lse.dense() && lse.cols() == out.rows() && sinks.count() == lse.rows() &&
                out.cols() % std::max<int64_t>(1, lse.rows()) == 0,
            "attention_sink: operands differ in shape");
}

void check_latent(Tensor k, Tensor v, Tensor kv, Tensor pe, const LatentShape& s) {
    require(k.rows() == kv.rows() && v.rows() == kv.rows() && pe.rows() == kv.rows() &&
                k.cols() == s.heads * (s.nope + s.rope) && v.cols() == s.heads * s.value &&
                kv.cols() == s.heads * (s.nope + s.value) && pe.cols() == s.rope,
            "latent_keys: operands do not have the shape given");
}

}  // namespace

void Cuda::attention_sink(Exec& exec, Tensor out, Tensor lse, Tensor sinks) {
    check_sinks(out, lse, sinks);
    const int64_t heads = lse.rows(), width = out.cols() / std::max<int64_t>(1, heads);
    dispatch(sinks.dtype, [&]<class T>(T) {
        const auto scale = [&]<class O>(O) {
            launch(exec, "attention_sink", {blocks_for(out.rows()), head_threads},
                   attention_sink_kernel<O, T>, rows_of<O>(out), lse.as<Acc<T>>(), sinks.as<const T>(),
                   out.rows(), heads, width);
        };
        out.dtype == sinks.dtype ? scale(T()) : scale(Acc<T>());
    });
}

void Cuda::attention_sink_backward(Exec& exec, Tensor dsinks, Tensor dout, Tensor out, Tensor lse,
                                   Tensor sinks) {
    check_sinks(out, lse, sinks);
    const int64_t heads = lse.rows(), width = out.cols() / std::max<int64_t>(1, heads);
    dispatch(sinks.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        add_column_sums<A>(exec, dsinks, out.rows(), heads, [&](A* partial, int64_t blocks) {
            launch(exec, "attention_sink_backward", {blocks_for(blocks), head_threads},
                   attention_sink_backward_kernel<T>, partial, rows_of<const T>(dout), rows_of<const T>(out),
                   lse.as<const A>(), sinks.as<const T>(), out.rows(), heads, width);
        });
    });
}

void Cuda::latent_keys(Exec& exec, Tensor k, Tensor v, Tensor kv, Tensor pe, const LatentShape& s) {
    check_latent(k, v, kv, pe, s);
    dispatch(kv.dtype, [&]<class T>(T) {
        launch(exec, "latent_keys", {blocks_for(kv.rows()), threads_for(k.cols())}, latent_keys_kernel<T>,
               rows_of<T>(k), rows_of<T>(v), rows_of<const T>(kv), rows_of<const T>(pe), s);
    });
}

void Cuda::latent_keys_backward(Exec& exec, Tensor dkv, Tensor dpe, Tensor dk, Tensor dv,
                                const LatentShape& s) {
    check_latent(dk, dv, dkv, dpe, s);
    dispatch(dkv.dtype, [&]<class T>(T) {
        launch(exec, "latent_keys_backward", {blocks_for(dkv.rows()), threads_for(dkv.cols())},
               latent_keys_backward_kernel<T>, rows_of<T>(dkv), rows_of<T>(dpe), rows_of<const T>(dk),
               rows_of<const T>(dv), s);
    });
}

void Cuda::scale_rows(Exec& exec, Tensor x, Tensor factors, Tensor positions) {
    require(positions.count() == x.rows(), "scale_rows: needs one position for each row");
    dispatch(x.dtype, [&]<class T>(T) {
        launch(exec, "scale_rows", {blocks_for(x.rows()), threads_for(x.cols())}, scale_rows_kernel<T>,
               rows_of<T>(x), factors.as<const Acc<T>>(), positions.as<const int32_t>(), x.cols());
    });
}

void Cuda::add_bias(Exec& exec, Tensor y, Tensor bias) {
    require(bias.count() == y.cols(), "add_bias: the bias does not have the width of the rows");
    dispatch(bias.dtype, [&]<class T>(T) {
        const auto add = [&]<class Y>(Y) {
            launch(exec, "add_bias", {blocks_for(y.rows()), threads_for(y.cols())}, add_bias_kernel<Y, T>,
                   rows_of<Y>(y), bias.as<const T>(), y.cols());
        };
        if (y.dtype == bias.dtype)
            add(T());
        else
            add(Acc<T>());
    });
}

void Cuda::add_bias_backward(Exec& exec, Tensor dbias, Tensor dy) {
    require(dbias.count() == dy.cols(), "add_bias: the bias does not have the width of the rows");
    dispatch(dy.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        add_column_sums<A>(exec, dbias, dy.rows(), dy.cols(), [&](A* partial, int64_t blocks) {
            if (partial)
                launch(exec, "add_bias_backward", {blocks_for(blocks), threads_for(dy.cols())},
                       add_bias_backward_kernel<T>, partial, rows_of<const T>(dy), dy.rows(), dy.cols());
        });
    });
}

}  // namespace coeus::cuda
