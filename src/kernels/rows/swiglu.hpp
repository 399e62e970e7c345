// SPDX-License-Identifier: Apache-2.0
// SwiGLU (Shazeer 2020) of one row [g | u] of 2F elements, and its backward:
//   y = silu(g) u
//   dg = dy u silu'(g),  du = dy silu(g),  where silu'(g) = s (1 + g (1 - s)) with s = sigmoid(g)
#pragma once

#include "team.hpp"

namespace coeus::rows {

template <class Team, class T>
COEUS_HD void swiglu_row(const Team& team, T* y, const T* gate, const T* up, int64_t width) {
    using A = Acc<T>;
    team.map(
        width, y, [](A g, A u) { return g * sigmoid<T>(g) * u; }, gate, up);
}

/// Computes dgate and dup, which may be gate and up.
template <class Team, class T>
COEUS_HD void swiglu_backward_row(const Team& team, T* dgate, T* dup, const T* dy, const T* gate, const T* up,
                                  int64_t width) {
    using A = Acc<T>;
    team.map_two(
        width, dgate, dup,
        [](A d, A g, A u) {
            const A s = sigmoid<T>(g);
            return Two<A>{d * u * s * (A(1) + g * (A(1) - s)), d * g * s};
        },
        dy, gate, up);
}

}  // namespace coeus::rows
