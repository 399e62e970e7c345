// SPDX-License-Identifier: Apache-2.0
// The activation of experts, for one row of 2F elements (kernels/routing.hpp, Gate):
//   y = scale (u' + shift) g' s,   s = sigmoid(q(g')),  g' = min(g, limit),  u' = clamp(u, +-limit)
//   dg = scale dy (u' + shift) s (1 + q'(g') g' (1 - s))  if g <= limit,  du = scale dy g' s  if |u| <= limit
// q(g) is alpha g, or that of GELU (exponent_of).
// If the scale belongs to the input, it multiplies g and u, and so dg and du, instead of y and dy.
#pragma once

#include "team.hpp"

namespace coeus::rows {

/// The activation with the scale of one row, for elements of type T.
template <class T, Activation activation>
class GateOfRow {
    using A = Acc<T>;

public:
    COEUS_HD GateOfRow(A scale, const Gate& o)
        : limit_(o.limit > 0 ? A(o.limit) : A(INFINITY)),
          alpha_(A(o.alpha)),
          shift_(A(o.shift)),
          input_(o.scales_input ? scale : A(1)),
          result_(o.scales_input ? A(1) : scale) {}

    COEUS_HD A value(A g, A u) const { return result_ * unscaled(clamped(g, u)); }
    /// The gradients of g and u, for that of the value.
    COEUS_HD Two<A> gradients(A d, A g, A u) const {
        const Two<A> by = gradients_of_inputs(result_ * d, g, u);
        return {input_ * by.first, input_ * by.second};
    }
    /// This element's part of the gradient of the scale: of the result, or of g and u.
    COEUS_HD A of_result_scale(A d, A g, A u) const { return d * unscaled(clamped(g, u)); }
    COEUS_HD A of_input_scale(A d, A g, A u) const {
        const Two<A> by = gradients_of_inputs(d, g, u);
        return by.first * g + by.second * u;
    }

private:
    /// g', u' and the sigmoid.
    struct Clamped {
        A g, u, s;
    };
    COEUS_HD Clamped clamped(A g, A u) const {
        g *= input_, u *= input_;
        g = g > limit_ ? limit_ : g;  // this order keeps NaN
        u = u > limit_ ? limit_ : u;
        u = u < -limit_ ? -limit_ : u;
        return {g, u, sigmoid<T>(exponent(g))};
    }
    COEUS_HD A exponent(A g) const {
        return activation == Activation::silu ? alpha_ * g : exponent_of<activation>(g);
    }
    COEUS_HD A slope(A g) const {
        return activation == Activation::silu ? alpha_ : slope_of_exponent<activation>(g);
    }
    COEUS_HD A unscaled(const Clamped& x) const { return (x.u + shift_) * x.g * x.s; }
    COEUS_HD Two<A> gradients_of_inputs(A d, A g, A u) const {
        const Clamped x = clamped(g, u);
        const A dg = d * (x.u + shift_) * x.s * (A(1) + slope(x.g) * x.g * (A(1) - x.s)), du = d * x.g * x.s;
        g *= input_, u *= input_;
        return {g > limit_ ? A(0) : dg, u > limit_ ? A(0) : u < -limit_ ? A(0) : du};
    }

    A limit_, alpha_, shift_, input_, result_;
};

template <Activation activation, class Team, class T>
COEUS_HD void gate_row(const Team& team, T* y, const T* gate_up, int64_t width, Acc<T> scale, const Gate& o) {
    using A = Acc<T>;
    const GateOfRow<T, activation> gate(scale, o);
    if (o.interleaved)
        return team.each(width, [=](int64_t j) {
            y[j] = store<T>(gate.value(load(gate_up[2 * j]), load(gate_up[2 * j + 1])));
        });
    team.map(
        width, y, [=](A g, A u) { return gate.value(g, u); }, gate_up, gate_up + width);
}

/// The sum of f(d, g, u) over the row.
template <class Team, class T, class F>
COEUS_HD Acc<T> gate_sum(const Team& team, const T* dy, const T* gate_up, int64_t width, bool interleaved,
                         F&& f) {
    using A = Acc<T>;
    if (interleaved)
        return team.template sum_of<A>(
            width, [=](int64_t j) { return f(load(dy[j]), load(gate_up[2 * j]), load(gate_up[2 * j + 1])); });
    return team.template sum<A>(width, f, dy, gate_up, gate_up + width);
}

/// The gradient of the scale.
template <Activation activation, class Team, class T>
COEUS_HD Acc<T> gate_dot_row(const Team& team, const T* dy, const T* gate_up, int64_t width, Acc<T> scale,
                             const Gate& o) {
    using A = Acc<T>;
    const GateOfRow<T, activation> gate(scale, o);
    if (o.scales_input)
        return gate_sum(team, dy, gate_up, width, o.interleaved,
                        [=](A d, A g, A u) { return gate.of_input_scale(d, g, u); });
    return gate_sum(team, dy, gate_up, width, o.interleaved,
                    [=](A d, A g, A u) { return gate.of_result_scale(d, g, u); });
}

/// dgate_up may be gate_up. y may be null.
template <Activation activation, class Team, class T>
COEUS_HD void gate_backward_row(const Team& team, T* dgate_up, T* y, const T* dy, const T* gate_up,
                                int64_t width, Acc<T> scale, const Gate& o) {
    using A = Acc<T>;
    if (y) {
        gate_row<activation>(team, y, gate_up, width, scale, o);
        team.barrier();  // each thread may now overwrite what others have read
    }
    const GateOfRow<T, activation> gate(scale, o);
    if (o.interleaved)
        return team.each(width, [=](int64_t j) {
            const Two<A> by = gate.gradients(load(dy[j]), load(gate_up[2 * j]), load(gate_up[2 * j + 1]));
            dgate_up[2 * j] = store<T>(by.first);
            dgate_up[2 * j + 1] = store<T>(by.second);
        });
    team.map_two(
        width, dgate_up, dgate_up + width, [=](A d, A g, A u) { return gate.gradients(d, g, u); }, dy,
        gate_up, gate_up + width);
}

}  // namespace coeus::rows
