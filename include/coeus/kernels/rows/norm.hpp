// SPDX-License-Identifier: Apache-2.0
// RMSNorm (Zhang and Sennrich 2019) and LayerNorm (Ba et al. 2016) of one row of D elements, and their
// backward:
//   RMSNorm    y = x r w,        r = (mean x^2 + eps)^-1/2
//              dx = r g - x r^3 mean(g x),                g = dy w,   dw += dy x r
//   LayerNorm  y = (x - m) r w,  r = (mean (x - m)^2 + eps)^-1/2,  n = (x - m) r
//              dx = r (g - mean g - n mean(g n)),         g = dy w,   dw += dy n
#pragma once

#include "coeus/kernels/rows/team.hpp"

namespace coeus {

/// Returns r.
template <class Team, class T>
COEUS_HD Acc<T> rms_norm_row(const Team& team, T* y, const T* x, const T* weight, int64_t width, Acc<T> eps) {
    using A = Acc<T>;
    const A squares = team.template sum<A>(width, [=](int64_t j) { return load(x[j]) * load(x[j]); });
    const A rstd = A(1) / std::sqrt(squares / A(width) + eps);
    team.each(width, [=](int64_t j) { y[j] = store<T>(load(x[j]) * rstd * load(weight[j])); });
    return rstd;
}

/// dx, to which `plus` is added where it is not null. dx may be dy or plus.
template <class Team, class T>
COEUS_HD void rms_norm_backward_row(const Team& team, T* dx, const T* dy, const T* plus, const T* x,
                                    Acc<T> rstd, const T* weight, int64_t width) {
    using A = Acc<T>;
    const A dot =
        team.template sum<A>(width, [=](int64_t j) { return load(dy[j]) * load(weight[j]) * load(x[j]); });
    const A pull = dot * rstd * rstd / A(width);
    const auto own = [=](int64_t j) { return rstd * (load(dy[j]) * load(weight[j]) - load(x[j]) * pull); };
    if (plus)
        team.each(width, [=](int64_t j) { dx[j] = store<T>(load(plus[j]) + own(j)); });
    else
        team.each(width, [=](int64_t j) { dx[j] = store<T>(own(j)); });
}

template <class A>
struct MeanAndRstd {
    A mean, rstd;
};

/// `weight` may be null: then it is 1.
template <class Team, class T>
COEUS_HD MeanAndRstd<Acc<T>> layer_norm_row(const Team& team, T* y, const T* x, const T* weight,
                                            int64_t width, Acc<T> eps) {
    using A = Acc<T>;
    const A mean = team.template sum<A>(width, [=](int64_t j) { return load(x[j]); }) / A(width);
    const A squares =
        team.template sum<A>(width, [=](int64_t j) { return (load(x[j]) - mean) * (load(x[j]) - mean); });
    const A rstd = A(1) / std::sqrt(squares / A(width) + eps);
    if (weight)
        team.each(width, [=](int64_t j) { y[j] = store<T>((load(x[j]) - mean) * rstd * load(weight[j])); });
    else
        team.each(width, [=](int64_t j) { y[j] = store<T>((load(x[j]) - mean) * rstd); });
    return {mean, rstd};
}

/// dx, to which `plus` is added where it is not null. `weight` may be null. dx may be dy or plus.
template <class Team, class T>
COEUS_HD void layer_norm_backward_row(const Team& team, T* dx, const T* dy, const T* plus, const T* x,
                                      Acc<T> mean, Acc<T> rstd, const T* weight, int64_t width) {
    using A = Acc<T>;
    const auto g = [=](int64_t j) { return weight ? load(dy[j]) * load(weight[j]) : load(dy[j]); };
    const auto normal = [=](int64_t j) { return (load(x[j]) - mean) * rstd; };
    const A mean_g = team.template sum<A>(width, g) / A(width);
    const A pull = team.template sum<A>(width, [=](int64_t j) { return g(j) * normal(j); }) / A(width);
    const auto own = [=](int64_t j) { return rstd * (g(j) - mean_g - normal(j) * pull); };
    if (plus)
        team.each(width, [=](int64_t j) { dx[j] = store<T>(load(plus[j]) + own(j)); });
    else
        team.each(width, [=](int64_t j) { dx[j] = store<T>(own(j)); });
}

}  // namespace coeus
