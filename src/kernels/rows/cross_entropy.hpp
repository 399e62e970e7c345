// SPDX-License-Identifier: Apache-2.0
// Cross entropy of one row of V logits, and its gradient:
//   loss = scale (log sum exp x - x[label]),   dx = scale (softmax(x) - one_hot(label)),
//   both 0 for ignored_label.
// With a z-loss of weight w (Chowdhery et al. 2022, PaLM, section 5), which keeps log sum exp near 0:
//   loss += scale w (log sum exp x)^2,   dx += scale 2 w (log sum exp x) softmax(x).
// If the logits x are f times what a row contains, the kernels multiply it where they read it, and the
// gradient is f dx. It is computed in two steps, so that ranks with V columns each of a larger vocabulary can
// combine their sums in between.
#pragma once

#include "coeus/base/ignored_label.hpp"
#include "matrix.hpp"
#include "team.hpp"

#include <limits>

namespace coeus::rows {

/// log sum exp of f times a row; -infinity for an empty row.
template <class Team, class T>
COEUS_HD Acc<T> log_sum_exp_row(const Team& team, const T* logits, int64_t width, Acc<T> f) {
    using A = Acc<T>;
    if (width == 0) return -std::numeric_limits<A>::infinity();
    const auto [largest, total] = team.template sum_of_exp<A>(width, logits, f);
    return f * largest + std::log(total);
}

/// The largest element of a row; -infinity for an empty row.
template <class Team, class T>
COEUS_HD Acc<T> largest_of_row(const Team& team, const T* logits, int64_t width) {
    using A = Acc<T>;
    return width == 0 ? -std::numeric_limits<A>::infinity() : team.template largest<A>(width, logits);
}

/// Loss of a token. A label outside the vocabulary gives NaN, which stops the run; the checks of the data
/// reject such labels before.
template <class A>
COEUS_HD A token_loss(int32_t label, int64_t vocabulary, A scale, A lse, A at_label) {
    if (label >= 0 && label < vocabulary) return scale * (lse - at_label);
    return label == ignored_label ? A(0) : std::numeric_limits<A>::quiet_NaN();
}

/// The z-loss of a token, of weight `w`.
template <class A>
COEUS_HD A token_z_loss(int32_t label, int64_t vocabulary, A scale, A w, A lse) {
    return label >= 0 && label < vocabulary ? scale * w * lse * lse : A(0);
}

/// log sum exp over parts[p][t] for p < count.
template <class A>
COEUS_HD A add_log_sum_exp_at(Rows<const A> parts, int64_t count, int64_t t) {
    A largest = parts[0][t];
    for (int64_t p = 1; p < count; ++p) largest = parts[p][t] > largest ? parts[p][t] : largest;
    A total = 0;
    for (int64_t p = 0; p < count; ++p) total += std::exp(parts[p][t] - largest);
    return largest + std::log(total);
}

/// Computes f dx for a row; `lse` is that of f times the row. `dlogits` may be the logits. `label` is the
/// column of the label, or any number outside the row. `scale` must be 0 for an ignored label. `w`: the
/// weight of the z-loss; with has_z = false it is not read, and the row costs nothing more.
template <bool has_z, class Team, class T>
COEUS_HD void cross_entropy_gradient_row(const Team& team, T* dlogits, const T* logits, int64_t label,
                                         int64_t width, Acc<T> f, Acc<T> lse, Acc<T> scale, Acc<T> w) {
    using A = Acc<T>;
    if (scale == A(0)) {
        team.each(width, [=](int64_t j) { dlogits[j] = store<T>(A(0)); });
        return;
    }
    [[maybe_unused]] const A factor = 1 + 2 * w * lse;
    scale *= f;
    team.map_at(
        width, dlogits,
        [=](int64_t j, A x) {
            A softmax = exp_for<T>(multiply_add(f, x, -lse));
            if constexpr (has_z) softmax *= factor;
            return scale * (j == label ? softmax - A(1) : softmax);
        },
        logits);
}

}  // namespace coeus::rows
