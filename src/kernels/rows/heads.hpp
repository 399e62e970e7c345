// SPDX-License-Identifier: Apache-2.0
// Row functions of attention layers around attention itself: for one token and head.
#pragma once

#include "team.hpp"

#include <limits>

namespace coeus::rows {

/// Scales a head's output of attention for one more key with the score `sink` and a value of zeros. Returns
/// the log of the sum of exp of all scores; `lse` is that without the sink.
template <class Team, class O, class A>
COEUS_HD A attention_sink_row(const Team& team, O* out, int64_t width, A lse, A sink) {
    const A largest = lse > sink ? lse : sink;
    const A total = largest + std::log(std::exp(lse - largest) + std::exp(sink - largest));
    const A factor = std::exp(lse - total);
    team.map(
        width, out, [=](auto x) { return factor * x; }, out);
    return total;
}

/// A head's part of a sink's gradient: -e^(sink - lse) (dout . out).
template <class Team, class T, class A>
COEUS_HD A attention_sink_gradient(const Team& team, const T* dout, const T* out, int64_t width, A lse,
                                   A sink) {
    const A dot = team.template sum<A>(
        width, [](A d, A o) { return d * o; }, dout, out);
    return -std::exp(sink - lse) * dot;
}

}  // namespace coeus::rows
