// SPDX-License-Identifier: Apache-2.0
// SwiGLU (Shazeer 2020) of one row [g | u] of 2F elements: y = silu(g) u; dg = dy u silu'(g),
// silu'(g) = s (1 + g (1 - s)) with s = sigmoid(g); du = dy silu(g).
#pragma once

#include "coeus/kernels/rows/team.hpp"

namespace coeus {

template <class Team, class T>
COEUS_HD void swiglu_row(const Team& team, T* y, const T* gate, const T* up, int64_t width) {
    team.each(width, [=](int64_t j) { y[j] = store<T>(silu(load(gate[j])) * load(up[j])); });
}

/// dgate and dup may be gate and up.
template <class Team, class T>
COEUS_HD void swiglu_backward_row(const Team& team, T* dgate, T* dup, const T* dy, const T* gate, const T* up,
                                  int64_t width) {
    using A = Acc<T>;
    team.each(width, [=](int64_t j) {
        const A g = load(gate[j]), u = load(up[j]), d = load(dy[j]), s = sigmoid(g);
        dgate[j] = store<T>(d * u * s * (A(1) + g * (A(1) - s)));
        dup[j] = store<T>(d * g * s);
    });
}

}  // namespace coeus
