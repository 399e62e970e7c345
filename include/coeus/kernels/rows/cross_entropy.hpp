// SPDX-License-Identifier: Apache-2.0
// Cross entropy of one row of V logits, and its gradient:
//   loss = scale (log sum exp x - x[label]),   dx = scale (softmax(x) - one_hot(label)),   both 0 for label
//   -100.
#pragma once

#include "coeus/kernels/rows/team.hpp"

#include <limits>

namespace coeus {

inline constexpr int32_t ignored_label = -100;

/// Returns the loss. `dlogits` may be null or the logits. A label outside the vocabulary, which the data's
/// checks keep away, gives a loss of NaN, on which the run stops.
template <class Team, class T>
COEUS_HD Acc<T> cross_entropy_row(const Team& team, T* dlogits, const T* logits, int32_t label, int64_t width,
                                  Acc<T> scale) {
    using A = Acc<T>;
    const bool outside = label < 0 || label >= width;
    if (outside) {
        if (dlogits) team.each(width, [=](int64_t j) { dlogits[j] = store<T>(A(0)); });
        return label == ignored_label ? A(0) : std::numeric_limits<A>::quiet_NaN();
    }
    const A largest = team.template largest<A>(width, [=](int64_t j) { return load(logits[j]); });
    const A total = team.template sum<A>(width, [=](int64_t j) { return exp_of(load(logits[j]) - largest); });
    const A at_label = load(logits[label]);
    const A loss = scale * (std::log(total) - (at_label - largest));
    if (!dlogits) return loss;
    const A factor = scale / total;
    const A slope = scale * (exp_of(at_label - largest) / total - A(1));
    team.each(width, [=](int64_t j) {
        const A softmax = factor * exp_of(load(logits[j]) - largest);
        dlogits[j] = store<T>(j == label ? slope : softmax);
    });
    return loss;
}

}  // namespace coeus
