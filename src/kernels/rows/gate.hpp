// SPDX-License-Identifier: Apache-2.0
// The activation of experts, for one row of 2F elements (kernels/routing.hpp, Gate):
//   y = scale (u' + shift) g' s,   s = sigmoid(alpha g'),  g' = min(g, limit),  u' = clamp(u, +-limit)
//   dg = scale dy (u' + shift) s (1 + alpha g' (1 - s))  where g <= limit,  du = scale dy g' s  where |u| <=
//   limit
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
};

template <class Team, class T>
COEUS_HD void gate_row(const Team& team, T* y, const T* gate_up, int64_t width, Acc<T> scale, const Gate& o) {
    using A = Acc<T>;
    const GatePlaces at(o, width);
    team.each(width, [=](int64_t j) {
        const Gated<A> x(load(gate_up[at.of_gate(j)]), load(gate_up[at.of_up(j)]), o);
        y[j] = store<T>(scale * x.value(o));
    });
}

/// dy . gate(gate_up), without the scale.
template <class Team, class T>
COEUS_HD Acc<T> gate_dot_row(const Team& team, const T* dy, const T* gate_up, int64_t width, const Gate& o) {
    using A = Acc<T>;
    const GatePlaces at(o, width);
    return team.template sum_of<A>(width, [=](int64_t j) {
        const Gated<A> x(load(gate_up[at.of_gate(j)]), load(gate_up[at.of_up(j)]), o);
        return load(dy[j]) * x.value(o);
    });
}

/// dgate_up may be gate_up. y may be null.
template <class Team, class T>
COEUS_HD void gate_backward_row(const Team& team, T* dgate_up, T* y, const T* dy, const T* gate_up,
                                int64_t width, Acc<T> scale, const Gate& o) {
    using A = Acc<T>;
    const GatePlaces at(o, width);
    team.each(width, [=](int64_t j) {
        const Gated<A> x(load(gate_up[at.of_gate(j)]), load(gate_up[at.of_up(j)]), o);
        const A d = scale * load(dy[j]);
        if (y) y[j] = store<T>(scale * x.value(o));
        const A dg = d * (x.u + A(o.shift)) * x.s * (A(1) + A(o.alpha) * x.g * (A(1) - x.s));
        dgate_up[at.of_gate(j)] = store<T>(x.g_passes ? dg : A(0));
        dgate_up[at.of_up(j)] = store<T>(x.u_passes ? d * x.g * x.s : A(0));
    });
}

}  // namespace coeus::rows
