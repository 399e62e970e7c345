// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding (Su et al. 2021) of `width` elements of one head of one token. Pair j is rotated
// by the angle whose cosine and sine are table[2j] and table[2j + 1]. The backward rotates back.
#pragma once

#include "team.hpp"

namespace coeus::rows {

template <class Team, class T>
COEUS_HD void rope_row(const Team& team, T* x, const Acc<T>* table, int64_t width, RopeLayout layout,
                       bool inverse) {
    using A = Acc<T>;
    const A sign = inverse ? A(-1) : A(1);
    const int64_t half = width / 2;
    if (layout == RopeLayout::interleaved)
        team.each(half, [=](int64_t j) {
            A a = load(x[2 * j]), b = load(x[2 * j + 1]);
            rotate(a, b, table[2 * j], sign * table[2 * j + 1]);
            x[2 * j] = store<T>(a);
            x[2 * j + 1] = store<T>(b);
        });
    else
        team.each(half, [=](int64_t j) {
            A a = load(x[j]), b = load(x[j + half]);
            rotate(a, b, table[2 * j], sign * table[2 * j + 1]);
            x[j] = store<T>(a);
            x[j + half] = store<T>(b);
        });
}

}  // namespace coeus::rows
