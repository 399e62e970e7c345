// SPDX-License-Identifier: Apache-2.0
// Modulation of one row of D elements by the scale s and the shift b of its sequence, with its backward
// (Kernels::modulate), and the squared error of a row:
//   y = plus + (base + s) x + b,   dx = (base + s) dy,   ds += dy x,   db += dy
//   loss = w sum (p - t)^2,        dp = 2 w (p - t)
#pragma once

#include "coeus/base/error.hpp"
#include "coeus/device/tensor.hpp"
#include "coeus/kernels/routing.hpp"
#include "team.hpp"

namespace coeus::rows {

/// What the kernels of all backends require of their operands. For the backward, those are dx, dy, x, dshift
/// and scale.
inline void check_modulate(const Tensor& y, const Tensor& plus, const Tensor& x, const Tensor& shift,
                           const Tensor& scale, const SequenceRows& rows) {
    require(y.shape == x.shape && scale.cols() == x.cols() && rows.length > 0 &&
                (x.rows() == 0 || rows.sequence_of(x.rows() - 1) < scale.rows()) &&
                (!plus || plus.shape == x.shape) && (!shift || shift.shape == scale.shape),
            "modulate: operands differ in shape");
}
inline void check_squared_error(const Tensor& losses, const Tensor& dprediction, const Tensor& prediction,
                                const Tensor& target, const Tensor& weights, const SequenceRows& rows) {
    const int64_t n = prediction.rows();
    require(losses.count() == n && target.shape == prediction.shape &&
                (!dprediction || dprediction.shape == prediction.shape) && rows.length > 0 &&
                (n == 0 || rows.sequence_of(n - 1) < weights.count()),
            "squared_error: operands differ in shape");
}

/// `more`: what is added, plus and shift, of which either or both may be left out.
template <class Team, class T, class... More>
COEUS_HD void modulate_with(const Team& team, T* y, const T* x, const T* scale, int64_t width, Acc<T> base,
                            const More*... more) {
    using A = Acc<T>;
    team.map(
        width, y,
        [=](A xj, A sj, auto... added) {
            if constexpr (sizeof...(added) > 0)
                return multiply_add(base + sj, xj, (added + ...));
            else
                return (base + sj) * xj;
        },
        x, scale, more...);
}

/// plus and shift may be null. y may be x or plus.
template <class Team, class T>
COEUS_HD void modulate_row(const Team& team, T* y, const T* plus, const T* x, const T* shift, const T* scale,
                           int64_t width, Acc<T> base) {
    if (plus && shift) return modulate_with(team, y, x, scale, width, base, plus, shift);
    if (plus || shift) return modulate_with(team, y, x, scale, width, base, plus ? plus : shift);
    modulate_with(team, y, x, scale, width, base);
}

/// dx of one element, whose part of the sums is added to `of_scale` and `of_shift`.
template <class A>
COEUS_HD A modulated_gradient(A dy, A x, A factor, A& of_scale, A& of_shift) {
    of_scale = multiply_add(dy, x, of_scale);
    of_shift += dy;
    return factor * dy;
}

/// The loss of a row of weight w. dprediction may be null or the prediction.
template <class Team, class T>
COEUS_HD Acc<T> squared_error_row(const Team& team, T* dprediction, const T* prediction, const Acc<T>* target,
                                  int64_t width, Acc<T> w) {
    using A = Acc<T>;
    if (w == A(0)) {  // of a sample that does not count: its prediction may be anything
        if (dprediction) team.each(width, [=](int64_t j) { dprediction[j] = store<T>(A(0)); });
        return A(0);
    }
    const A sum = team.template sum<A>(
        width, [](A p, A t) { return (p - t) * (p - t); }, prediction, target);
    if (dprediction)
        team.map(
            width, dprediction, [=](A p, A t) { return A(2) * w * (p - t); }, prediction, target);
    return w * sum;
}

}  // namespace coeus::rows
