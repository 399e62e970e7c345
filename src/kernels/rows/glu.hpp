// SPDX-License-Identifier: Apache-2.0
// SwiGLU or GEGLU (Shazeer 2020) of one row [g | u] of 2F elements, and its backward:
//   y = a(g) u
//   dg = dy u a'(g),  du = dy a(g),  where a(g) = g s and a'(g) = s (1 + g q'(g) (1 - s)) with s =
//   sigmoid(q(g))
// q is g for SwiGLU; see exponent_of(). And a(x) alone, without a second factor.
#pragma once

#include "team.hpp"

namespace coeus::rows {

template <Activation activation, class Team, class T>
COEUS_HD void glu_row(const Team& team, T* y, const T* gate, const T* up, int64_t width) {
    using A = Acc<T>;
    team.map(
        width, y, [](A g, A u) { return g * sigmoid<T>(exponent_of<activation>(g)) * u; }, gate, up);
}

/// Computes dgate and dup, which may be gate and up.
template <Activation activation, class Team, class T>
COEUS_HD void glu_backward_row(const Team& team, T* dgate, T* dup, const T* dy, const T* gate, const T* up,
                               int64_t width) {
    using A = Acc<T>;
    team.map_two(
        width, dgate, dup,
        [](A d, A g, A u) {
            const A s = sigmoid<T>(exponent_of<activation>(g));
            const A slope = g * slope_of_exponent<activation>(g);  // g itself for SwiGLU
            return Two<A>{d * u * s * multiply_add(slope, A(1) - s, A(1)), d * g * s};
        },
        dy, gate, up);
}

/// y may be x.
template <Activation kind, class Team, class T>
COEUS_HD void activation_row(const Team& team, T* y, const T* x, int64_t width) {
    using A = Acc<T>;
    team.map(
        width, y, [](A xj) { return xj * sigmoid<T>(exponent_of<kind>(xj)); }, x);
}

/// dx may be dy or x.
template <Activation kind, class Team, class T>
COEUS_HD void activation_backward_row(const Team& team, T* dx, const T* dy, const T* x, int64_t width) {
    using A = Acc<T>;
    team.map(
        width, dx,
        [](A d, A xj) {
            const A s = sigmoid<T>(exponent_of<kind>(xj));
            return d * s * multiply_add(xj * slope_of_exponent<kind>(xj), A(1) - s, A(1));
        },
        dy, x);
}

}  // namespace coeus::rows
