// SPDX-License-Identifier: Apache-2.0
// Kernels of attention layers around attention itself: sinks, the keys and values of latent attention, the
// scaling of queries by their position, and biases.
#include "../../rows/heads.hpp"

#include "column_sums.hpp"

namespace coeus::cpu {

namespace {

void check_sinks(Tensor out, Tensor lse, Tensor sinks) {
    require(lse.dense() && lse.cols() == out.rows() && sinks.count() == lse.rows() &&
                out.cols() % std::max<int64_t>(1, lse.rows()) == 0,
            "attention_sink: operands differ in shape");
}

}  // namespace

void Cpu::attention_sink(Exec& exec, Tensor out, Tensor lse, Tensor sinks) {
    check_sinks(out, lse, sinks);
    const int64_t heads = lse.rows(), width = out.cols() / std::max<int64_t>(1, heads);
    dispatch(sinks.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        const T* sink = sinks.as<const T>();
        const auto scale = [&]<class O>(O) {
            parallel_rows(exec, out.rows(), out.cols(), [&](int64_t t) {
                for (int64_t h = 0; h < heads; ++h) {
                    A& own = lse.row<A>(h)[t];
                    own = attention_sink_row(Lane(), out.row<O>(t) + h * width, width, own, load(sink[h]));
                }
            });
        };
        out.dtype == sinks.dtype ? scale(T()) : scale(A());
    });
}

void Cpu::attention_sink_backward(Exec& exec, Tensor dsinks, Tensor dout, Tensor out, Tensor lse,
                                  Tensor sinks) {
    check_sinks(out, lse, sinks);
    require(dout.shape == out.shape && dsinks.count() == sinks.count(),
            "attention_sink: operands differ in shape");
    const int64_t heads = lse.rows(), width = out.cols() / std::max<int64_t>(1, heads);
    dispatch(sinks.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        const T* sink = sinks.as<const T>();
        add_column_sums<A>(exec, dsinks, out.rows(), heads, [&](int64_t t, A* sums) {
            for (int64_t h = 0; h < heads; ++h)
                sums[h] += attention_sink_gradient(Lane(), dout.row<const T>(t) + h * width,
                                                   out.row<const T>(t) + h * width, width,
                                                   lse.row<const A>(h)[t], load(sink[h]));
        });
    });
}

namespace {

void check_latent(Tensor k, Tensor v, Tensor kv, Tensor pe, const LatentShape& s) {
    require(k.rows() == kv.rows() && v.rows() == kv.rows() && pe.rows() == kv.rows() &&
                k.cols() == s.heads * (s.nope + s.rope) && v.cols() == s.heads * s.value &&
                kv.cols() == s.heads * (s.nope + s.value) && pe.cols() == s.rope,
            "latent_keys: operands do not have the shape given");
}

}  // namespace

void Cpu::latent_keys(Exec& exec, Tensor k, Tensor v, Tensor kv, Tensor pe, const LatentShape& s) {
    check_latent(k, v, kv, pe, s);
    dispatch(kv.dtype, [&]<class T>(T) {
        parallel_rows(exec, kv.rows(), k.cols() + v.cols(), [&](int64_t t) {
            const T *from = kv.row<const T>(t), *shared = pe.row<const T>(t);
            T *keys = k.row<T>(t), *values = v.row<T>(t);
            for (int64_t h = 0; h < s.heads; ++h) {
                keys = std::copy_n(from, s.nope, keys);
                keys = std::copy_n(shared, s.rope, keys);
                values = std::copy_n(from + s.nope, s.value, values);
                from += s.nope + s.value;
            }
        });
    });
}

void Cpu::latent_keys_backward(Exec& exec, Tensor dkv, Tensor dpe, Tensor dk, Tensor dv,
                               const LatentShape& s) {
    check_latent(dk, dv, dkv, dpe, s);
    dispatch(dkv.dtype, [&]<class T>(T) {
        parallel_rows(exec, dkv.rows(), dk.cols() + dv.cols(), [&](int64_t t) {
            const T *keys = dk.row<const T>(t), *values = dv.row<const T>(t);
            T* to = dkv.row<T>(t);
            for (int64_t h = 0; h < s.heads; ++h) {
                to = std::copy_n(keys + h * (s.nope + s.rope), s.nope, to);
                to = std::copy_n(values + h * s.value, s.value, to);
            }
            T* shared = dpe.row<T>(t);
            for (int64_t j = 0; j < s.rope; ++j) {
                Acc<T> sum = 0;
                for (int64_t h = 0; h < s.heads; ++h) sum += load(keys[h * (s.nope + s.rope) + s.nope + j]);
                shared[j] = store<T>(sum);
            }
        });
    });
}

void Cpu::scale_rows(Exec& exec, Tensor x, Tensor factors, Tensor positions) {
    require(positions.count() == x.rows(), "scale_rows: needs one position for each row");
    const int32_t* position = positions.as<const int32_t>();
    dispatch(x.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        const A* factor = factors.as<const A>();
        parallel_rows(exec, x.rows(), x.cols(), [&](int64_t t) {
            Lane().map(
                x.cols(), x.row<T>(t), [f = factor[position[t]]](A a) { return f * a; }, x.row<const T>(t));
        });
    });
}

void Cpu::add_bias(Exec& exec, Tensor y, Tensor bias) {
    require(bias.count() == y.cols(), "add_bias: the bias does not have the width of the rows");
    dispatch(bias.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        const T* b = bias.as<const T>();
        const auto add = [&]<class Y>(Y) {
            parallel_rows(exec, y.rows(), y.cols(), [&](int64_t t) {
                Lane().map(
                    y.cols(), y.row<Y>(t), [](A a, A bj) { return a + bj; }, y.row<const Y>(t), b);
            });
        };
        if (y.dtype == bias.dtype)
            add(T());
        else
            add(A());
    });
}

void Cpu::add_bias_backward(Exec& exec, Tensor dbias, Tensor dy) {
    require(dbias.count() == dy.cols(), "add_bias: the bias does not have the width of the rows");
    dispatch(dy.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        add_column_sums<A>(exec, dbias, dy.rows(), dy.cols(), [&](int64_t t, A* sums) {
            const T* row = dy.row<const T>(t);
            Lane().each(dy.cols(), [=](int64_t j) { sums[j] += load(row[j]); });
        });
    });
}

}  // namespace coeus::cpu
