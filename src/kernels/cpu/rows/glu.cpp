// SPDX-License-Identifier: Apache-2.0
#include "../../rows/glu.hpp"

#include "../cpu.hpp"
#include "../quantization/rounded.hpp"

namespace coeus::cpu {

namespace {

template <Activation activation>
void forward(Exec& exec, Tensor y, Tensor gate_up) {
    const int64_t width = y.cols();
    require(gate_up.cols() == 2 * width && gate_up.rows() == y.rows(), "gated unit: gate_up is not [T, 2F]");
    require(!y.largest || y.largest_cols == width, "gated unit: y has one largest magnitude");
    dispatch(y.dtype, [&]<class T>(T) {
        with_lane(y, [&](const auto& lane) {
            parallel_rows(exec, y.rows(), 2 * width, [&](int64_t t) {
                const T* gate = gate_up.row<const T>(t);
                glu_row<activation>(lane, y.row<T>(t), gate, gate + width, width);
                round_row<T>(y, t);
            });
        });
    });
}

template <Activation activation>
void backward(Exec& exec, Tensor dgate_up, Tensor dy, Tensor gate_up) {
    const int64_t width = dy.cols();
    require(gate_up.cols() == 2 * width && gate_up.rows() == dy.rows() && dgate_up.cols() == 2 * width,
            "gated unit: gate_up is not [T, 2F]");
    require(!dgate_up.largest || dgate_up.largest_cols == width,
            "gated unit: dgate_up has two largest magnitudes");
    dispatch(dy.dtype, [&]<class T>(T) {
        with_lane(dgate_up, [&](const auto& lane) {
            parallel_rows(exec, dy.rows(), 3 * width, [&](int64_t t) {
                const T* gate = gate_up.row<const T>(t);
                T* dgate = dgate_up.row<T>(t);
                glu_backward_row<activation>(lane, dgate, dgate + width, dy.row<const T>(t), gate,
                                             gate + width, width);
            });
        });
    });
}

}  // namespace

void Cpu::activation(Exec& exec, Tensor y, Tensor x, Activation kind) {
    require(y.rows() == x.rows() && y.cols() == x.cols(), "activation: operands differ in shape");
    dispatch(y.dtype, [&]<class T>(T) {
        with_activation(kind, [&](auto is) {
            parallel_rows(exec, x.rows(), x.cols(), [&](int64_t i) {
                activation_row<is()>(Lane(), y.row<T>(i), x.row<const T>(i), x.cols());
            });
        });
    });
}

void Cpu::activation_backward(Exec& exec, Tensor dx, Tensor dy, Tensor x, Activation kind) {
    require(dx.rows() == x.rows() && dx.cols() == x.cols() && dy.rows() == x.rows() && dy.cols() == x.cols(),
            "activation: operands differ in shape");
    dispatch(x.dtype, [&]<class T>(T) {
        with_activation(kind, [&](auto is) {
            parallel_rows(exec, x.rows(), 2 * x.cols(), [&](int64_t i) {
                activation_backward_row<is()>(Lane(), dx.row<T>(i), dy.row<const T>(i), x.row<const T>(i),
                                              x.cols());
            });
        });
    });
}

void Cpu::swiglu(Exec& exec, Tensor y, Tensor gate_up) {
    forward<Activation::silu>(exec, y, gate_up);
}

void Cpu::swiglu_backward(Exec& exec, Tensor dgate_up, Tensor dy, Tensor gate_up) {
    backward<Activation::silu>(exec, dgate_up, dy, gate_up);
}

void Cpu::geglu(Exec& exec, Tensor y, Tensor gate_up) {
    forward<Activation::gelu_tanh>(exec, y, gate_up);
}

void Cpu::geglu_backward(Exec& exec, Tensor dgate_up, Tensor dy, Tensor gate_up) {
    backward<Activation::gelu_tanh>(exec, dgate_up, dy, gate_up);
}

}  // namespace coeus::cpu
