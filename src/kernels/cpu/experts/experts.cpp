// SPDX-License-Identifier: Apache-2.0
// Biases and activations of rows that are grouped by expert; grouped_gemm.cpp has their products.
#include "../../rows/gate.hpp"
#include "../rows/column_sums.hpp"
#include "group_rows.hpp"

namespace coeus::cpu {

namespace {

/// Calls f(row, group) for the rows of all groups.
template <class F>
void for_rows(Exec& exec, const Groups& groups, int64_t cols, F&& f) {
    for (int64_t g = 0; g < groups.number(); ++g) {
        const GroupRows rows = rows_of_group(groups, g);
        parallel_rows(exec, rows.count, cols, [&](int64_t i) { f(rows.begin + i, g); });
    }
}

// Those of groups and their padding, or all without groups.
int64_t rows_to_gate(const Groups& groups, const Tensor& rows) {
    if (!groups) return rows.rows();
    check_groups(groups, rows);
    return used_rows(groups);
}

}  // namespace

void Cpu::add_group_bias(Exec& exec, Tensor y, Tensor bias, Tensor scale, const Groups& groups) {
    check_groups(groups, y);
    require(bias.rows() == groups.number() && bias.cols() == y.cols(), "add_group_bias: shapes do not fit");
    dispatch(y.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        const A* factors = scale ? scale.as<const A>() : nullptr;
        for_rows(exec, groups, y.cols(), [&](int64_t i, int64_t g) {
            const A factor = factors ? factors[i] : A(1);
            Lane().map(
                y.cols(), y.row<T>(i), [=](A a, A b) { return a + factor * b; }, y.row<const T>(i),
                bias.row<const T>(g));
        });
    });
}

void Cpu::add_group_bias_backward(Exec& exec, Tensor dbias, Tensor dscale, Tensor dy, Tensor bias,
                                  Tensor scale, const Groups& groups) {
    check_groups(groups, dy);
    const int64_t cols = dy.cols();
    require(bias.rows() == groups.number() && bias.cols() == cols && (!dbias || dbias.shape == bias.shape),
            "add_group_bias: shapes do not fit");
    exec.workspace.touch(workspace::group_bias_backward(dbias, dy));
    dispatch(dy.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        const A* factors = scale ? scale.as<const A>() : nullptr;
        A* dots = dscale ? dscale.as<A>() : nullptr;
        for (int64_t g = 0; g < groups.number(); ++g) {
            const GroupRows rows = rows_of_group(groups, g);
            const T* of_group = bias.row<const T>(g);
            const Tensor sums_of_group = dbias ? dbias.slice_rows(g, 1).reshape({cols}) : Tensor{};
            add_column_sums<A>(exec, sums_of_group, rows.count, cols, [&](int64_t n, A* sums) {
                const int64_t i = rows.begin + n;
                const T* d = dy.row<const T>(i);
                const A factor = factors ? factors[i] : A(1);
                if (sums) Lane().each(cols, [=](int64_t j) { sums[j] += factor * load(d[j]); });
                if (dots)
                    dots[i] = Lane().sum<A>(
                        cols, [](A x, A b) { return x * b; }, d, of_group);
            });
        }
    });
}

void Cpu::gate(Exec& exec, Tensor y, Tensor gate_up, Tensor scale, const Groups& groups, const Gate& o) {
    const int64_t rows = rows_to_gate(groups, y);
    const int64_t width = y.cols();
    require(gate_up.cols() == 2 * width && gate_up.rows() == y.rows(), "gate: gate_up is not [rows, 2F]");
    dispatch(y.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        const A* factors = scale ? scale.as<const A>() : nullptr;
        with_activation(o.activation, [&](auto activation) {
            parallel_rows(exec, rows, 3 * width, [&](int64_t i) {
                gate_row<activation()>(Lane(), y.row<T>(i), gate_up.row<const T>(i), width,
                                       factors ? factors[i] : A(1), o);
            });
        });
    });
}

void Cpu::gate_backward(Exec& exec, Tensor dgate_up, Tensor dscale, Tensor y, Tensor dy, Tensor gate_up,
                        Tensor scale, const Groups& groups, const Gate& o) {
    const int64_t rows = rows_to_gate(groups, dy), width = dy.cols();
    require(gate_up.cols() == 2 * width && gate_up.rows() == dy.rows() && dgate_up.shape == gate_up.shape,
            "gate: gate_up is not [rows, 2F]");
    dispatch(dy.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        const A* factors = scale ? scale.as<const A>() : nullptr;
        A* dots = dscale ? dscale.as<A>() : nullptr;
        with_activation(o.activation, [&](auto activation) {
            parallel_rows(exec, rows, 6 * width, [&](int64_t i) {
                const T *d = dy.row<const T>(i), *in = gate_up.row<const T>(i);
                const A factor = factors ? factors[i] : A(1);
                if (dots) dots[i] = gate_dot_row<activation()>(Lane(), d, in, width, factor, o);
                gate_backward_row<activation()>(Lane(), dgate_up.row<T>(i), y ? y.row<T>(i) : nullptr, d, in,
                                                width, factor, o);
            });
        });
    });
}

}  // namespace coeus::cpu
