// SPDX-License-Identifier: Apache-2.0
// RMSNorm (Zhang and Sennrich 2019) and LayerNorm (Ba et al. 2016) of one row of D elements, with their
// backward:
//   RMSNorm    y = x r v,        r = (mean x^2 + eps)^-1/2,   v = offset + w
//              dx = r g - x r^3 mean(g x),                g = dy v,   dw += dy x r
//   LayerNorm  y = (x - m) r w,  r = (mean (x - m)^2 + eps)^-1/2,  n = (x - m) r
//              dx = r (g - mean g - n mean(g n)),         g = dy w,   dw += dy n
#pragma once

#include "team.hpp"

namespace coeus::rows {

/// x^-1/2 for elements of type T. For those of bf16 GPUs have an instruction, within 2 units in the last
/// place of float.
template <class T>
COEUS_HD Acc<T> inverse_root(Acc<T> x) {
#ifdef __CUDA_ARCH__
    if constexpr (std::is_same_v<T, bf16>) {
        float root;
        asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(x));
        return root;
    }
#endif
    return Acc<T>(1) / std::sqrt(x);
}

// x, dy, plus and weight are pointers or what else the team takes for a row. The offset is a number or
// NoOffset.

/// An offset of 0, for which nothing is computed.
struct NoOffset {};
/// What a weight multiplies by.
template <class A>
COEUS_HD A factor_of_weight(NoOffset, A w) {
    return w;
}
template <class A>
COEUS_HD A factor_of_weight(A offset, A w) {
    return offset + w;
}

/// Computes r for elements of type T.
template <class T, class Team, class X>
COEUS_HD Acc<T> rms_norm_rstd(const Team& team, const X& x, int64_t width, Acc<T> eps) {
    using A = Acc<T>;
    const A squares = team.template sum<A>(
        width, [](A xj) { return xj * xj; }, x);
    return inverse_root<T>(squares / A(width) + eps);
}

/// Computes y for a given r. `weight` may be null, which means that v is 1.
template <class Team, class T, class X, class Weight, class Offset>
COEUS_HD void rms_norm_scaled_row(const Team& team, T* y, const X& x, Acc<T> rstd, const Weight& weight,
                                  Offset offset, int64_t width) {
    using A = Acc<T>;
    if (weight)
        team.map(
            width, y, [=](A xj, A wj) { return xj * rstd * factor_of_weight(offset, wj); }, x, weight);
    else
        team.map(
            width, y, [=](A xj) { return xj * rstd; }, x);
}

/// Computes y and returns r. `weight` may be null.
template <class Team, class T, class X, class Weight, class Offset>
COEUS_HD Acc<T> rms_norm_row(const Team& team, T* y, const X& x, const Weight& weight, Offset offset,
                             int64_t width, Acc<T> eps) {
    const Acc<T> rstd = rms_norm_rstd<T>(team, x, width, eps);
    rms_norm_scaled_row(team, y, x, rstd, weight, offset, width);
    return rstd;
}

/// Computes plus + y and returns r. `plus` may be null, which means 0.
template <class Team, class T, class Plus, class X, class Weight, class Offset>
COEUS_HD Acc<T> rms_norm_added_row(const Team& team, T* y, const Plus& plus, const X& x, const Weight& weight,
                                   Offset offset, int64_t width, Acc<T> eps) {
    using A = Acc<T>;
    if (!plus) return rms_norm_row(team, y, x, weight, offset, width, eps);
    const A rstd = rms_norm_rstd<T>(team, x, width, eps);
    team.map(
        width, y, [=](A pj, A xj, A wj) { return pj + xj * rstd * factor_of_weight(offset, wj); }, plus, x,
        weight);
    return rstd;
}

/// The sum of g x.
template <class A, class Team, class Dy, class X, class Weight, class Offset>
COEUS_HD A rms_norm_product(const Team& team, const Dy& dy, const X& x, const Weight& weight, Offset offset,
                            int64_t width) {
    return team.template sum<A>(
        width, [=](A dyj, A wj, A xj) { return dyj * factor_of_weight(offset, wj) * xj; }, dy, weight, x);
}

/// Computes dx from `pull` = r^2 mean(g x), and adds `plus` to it if that is not null. dx may be dy, x or
/// plus.
template <class Team, class T, class Dy, class Plus, class X, class Weight, class Offset>
COEUS_HD void rms_norm_pulled_row(const Team& team, T* dx, const Dy& dy, const Plus& plus, const X& x,
                                  Acc<T> rstd, Acc<T> pull, const Weight& weight, Offset offset,
                                  int64_t width) {
    using A = Acc<T>;
    const auto own = [=](A dyj, A wj, A xj) {
        return rstd * (dyj * factor_of_weight(offset, wj) - xj * pull);
    };
    if (plus)
        team.map(
            width, dx, [=](A dyj, A wj, A xj, A pj) { return pj + own(dyj, wj, xj); }, dy, weight, x, plus);
    else
        team.map(width, dx, own, dy, weight, x);
}

/// Computes dx, and adds `plus` to it if that is not null. dx may be dy, x or plus.
template <class Team, class T, class Dy, class Plus, class X, class Weight, class Offset>
COEUS_HD void rms_norm_backward_row(const Team& team, T* dx, const Dy& dy, const Plus& plus, const X& x,
                                    Acc<T> rstd, const Weight& weight, Offset offset, int64_t width) {
    using A = Acc<T>;
    const A dot = rms_norm_product<A>(team, dy, x, weight, offset, width);
    const A pull = dot * rstd * rstd / A(width);
    rms_norm_pulled_row(team, dx, dy, plus, x, rstd, pull, weight, offset, width);
}

/// The same without a weight and without a residual path: dx = r dy - x r^3 mean(dy x). dx may be dy or x.
template <class Team, class T>
COEUS_HD void rms_norm_backward_row(const Team& team, T* dx, const T* dy, const T* x, Acc<T> rstd,
                                    int64_t width) {
    using A = Acc<T>;
    const A dot = team.template sum<A>(
        width, [](A dyj, A xj) { return dyj * xj; }, dy, x);
    const A pull = dot * rstd * rstd / A(width);
    team.map(
        width, dx, [=](A dyj, A xj) { return rstd * (dyj - xj * pull); }, dy, x);
}

template <class A>
struct MeanAndRstd {
    A mean, rstd;
};

/// Computes y and returns m and r. `weight` may be null, which means 1.
template <class Team, class T, class X, class Weight>
COEUS_HD MeanAndRstd<Acc<T>> layer_norm_row(const Team& team, T* y, const X& x, const Weight& weight,
                                            int64_t width, Acc<T> eps) {
    using A = Acc<T>;
    const A mean = team.template sum<A>(
                       width, [](A xj) { return xj; }, x) /
                   A(width);
    const A squares = team.template sum<A>(
        width, [=](A xj) { return (xj - mean) * (xj - mean); }, x);
    const A rstd = inverse_root<T>(squares / A(width) + eps);
    if (weight)
        team.map(
            width, y, [=](A xj, A wj) { return (xj - mean) * rstd * wj; }, x, weight);
    else
        team.map(
            width, y, [=](A xj) { return (xj - mean) * rstd; }, x);
    return {mean, rstd};
}

/// Computes dx from the gradients g = weigh(dy, w) of the normalised row; `weight` is the weight or absent.
template <class Team, class T, class Dy, class Plus, class X, class Weigh, class... Weight>
COEUS_HD void layer_norm_backward_weighted(const Team& team, T* dx, const Dy& dy, const Plus& plus,
                                           const X& x, Acc<T> mean, Acc<T> rstd, int64_t width,
                                           const Weigh& weigh, const Weight&... weight) {
    using A = Acc<T>;
    const auto normal = [=](A xj) { return (xj - mean) * rstd; };
    const A mean_g = team.template sum<A>(width, weigh, dy, weight...) / A(width);
    const A pull = team.template sum<A>(
                       width, [=](A xj, A dyj, auto... wj) { return weigh(dyj, wj...) * normal(xj); }, x, dy,
                       weight...) /
                   A(width);
    const auto own = [=](A xj, A dyj, auto... wj) {
        return rstd * (weigh(dyj, wj...) - mean_g - normal(xj) * pull);
    };
    if (plus)
        team.map(
            width, dx, [=](A pj, A xj, A dyj, auto... wj) { return pj + own(xj, dyj, wj...); }, plus, x, dy,
            weight...);
    else
        team.map(width, dx, own, x, dy, weight...);
}

/// Computes dx, and adds `plus` to it if that is not null. `weight` may be null. dx may be dy or plus.
template <class Team, class T, class Dy, class Plus, class X, class Weight>
COEUS_HD void layer_norm_backward_row(const Team& team, T* dx, const Dy& dy, const Plus& plus, const X& x,
                                      Acc<T> mean, Acc<T> rstd, const Weight& weight, int64_t width) {
    using A = Acc<T>;
    if (weight)
        layer_norm_backward_weighted(
            team, dx, dy, plus, x, mean, rstd, width, [](A dyj, A wj) { return dyj * wj; }, weight);
    else
        layer_norm_backward_weighted(team, dx, dy, plus, x, mean, rstd, width, [](A dyj) { return dyj; });
}

}  // namespace coeus::rows
