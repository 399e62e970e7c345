// SPDX-License-Identifier: Apache-2.0
// The activation of experts, for one row of 2F elements (kernels/routing.hpp, Gate):
//   y = scale (u' + shift) g' s,   s = sigmoid(alpha g'),  g' = min(g, limit),  u' = clamp(u, +-limit)
//   dg = scale dy (u' + shift) s (1 + alpha g' (1 - s))  if g <= limit,  du = scale dy g' s  if |u| <= limit
// If the scale belongs to the input, it multiplies g and u, and so dg and du, instead of y and dy.
#pragma once

#include "team.hpp"

namespace coeus::rows {

/// Where g and u of element j are in a row.
struct GatePlaces {
    int64_t up, step;
    COEUS_HD GatePlaces(const Gate& gate, int64_t width)
        : up(gate.interleaved ? 1 : width), step(gate.interleaved ? 2 : 1) {}
    COEUS_HD int64_t of_gate(int64_t j) const { return j * step; }
    COEUS_HD int64_t of_up(int64_t j) const { return up + j * step; }
};

/// The factors of g and u, and of the result.
template <class A>
struct GateFactors {
    A input, result;
    COEUS_HD GateFactors(A scale, const Gate& o)
        : input(o.scales_input ? scale : A(1)), result(o.scales_input ? A(1) : scale) {}
};

/// g', u' and the sigmoid of one element.
template <class A>
struct Gated {
    A g, u, s;
    bool g_passes, u_passes;  ///< not clamped
    COEUS_HD Gated(A gate, A up, const Gate& o) : g(gate), u(up), g_passes(true), u_passes(true) {
        if (o.limit > 0) {
            const A limit = A(o.limit);
            g_passes = !(g > limit);
            u_passes = !(u > limit) && !(u < -limit);
            if (!g_passes) g = limit;
            if (u > limit) u = limit;
            if (u < -limit) u = -limit;
        }
        s = sigmoid(A(o.alpha) * g);
    }
    COEUS_HD A value(const Gate& o) const { return (u + A(o.shift)) * g * s; }
    /// The gradients of g and u for that of the value.
    COEUS_HD A dg(A d, const Gate& o) const {
        return g_passes ? d * (u + A(o.shift)) * s * (A(1) + A(o.alpha) * g * (A(1) - s)) : A(0);
    }
    COEUS_HD A du(A d) const { return u_passes ? d * g * s : A(0); }
};

template <class Team, class T>
COEUS_HD void gate_row(const Team& team, T* y, const T* gate_up, int64_t width, Acc<T> scale, const Gate& o) {
    using A = Acc<T>;
    const GatePlaces at(o, width);
    const GateFactors<A> by(scale, o);
    team.each(width, [=](int64_t j) {
        const Gated<A> x(by.input * load(gate_up[at.of_gate(j)]), by.input * load(gate_up[at.of_up(j)]), o);
        y[j] = store<T>(by.result * x.value(o));
    });
}

/// The gradient of the scale.
template <class Team, class T>
COEUS_HD Acc<T> gate_dot_row(const Team& team, const T* dy, const T* gate_up, int64_t width, Acc<T> scale,
                             const Gate& o) {
    using A = Acc<T>;
    const GatePlaces at(o, width);
    const GateFactors<A> by(scale, o);
    return team.template sum_of<A>(width, [=](int64_t j) {
        const A g = load(gate_up[at.of_gate(j)]), u = load(gate_up[at.of_up(j)]), d = load(dy[j]);
        const Gated<A> x(by.input * g, by.input * u, o);
        return o.scales_input ? x.dg(d, o) * g + x.du(d) * u : d * x.value(o);
    });
}

/// dgate_up may be gate_up. y may be null.
template <class Team, class T>
COEUS_HD void gate_backward_row(const Team& team, T* dgate_up, T* y, const T* dy, const T* gate_up,
                                int64_t width, Acc<T> scale, const Gate& o) {
    using A = Acc<T>;
    const GatePlaces at(o, width);
    const GateFactors<A> by(scale, o);
    team.each(width, [=](int64_t j) {
        const Gated<A> x(by.input * load(gate_up[at.of_gate(j)]), by.input * load(gate_up[at.of_up(j)]), o);
        const A d = by.result * load(dy[j]);
        if (y) y[j] = store<T>(by.result * x.value(o));
        dgate_up[at.of_gate(j)] = store<T>(by.input * x.dg(d, o));
        dgate_up[at.of_up(j)] = store<T>(by.input * x.du(d));
    });
}

}  // namespace coeus::rows
