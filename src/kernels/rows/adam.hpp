// SPDX-License-Identifier: Apache-2.0
// Adam (Kingma and Ba 2015) and AdamW (Loshchilov and Hutter 2019) over a run of elements. bf16 weights and
// moments are rounded stochastically, with random bits that depend only on (seed, stream, step, global
// index).
#pragma once

#include "stochastic_rounding.hpp"
#include "team.hpp"

namespace coeus::rows {

/// Calls f(T, M) for the type of the weights and that of the moments: the same type, or bf16 moments with f32
/// weights. `dispatch` is the backend's.
template <class Dispatch, class F>
void dispatch_moments(Dtype master, Dtype moments, const Dispatch& dispatch, F&& f) {
    dispatch(master, [&]<class T>(T) {
        if (moments == master) return f(T(), T());
        if constexpr (std::is_same_v<T, float>)
            if (moments == Dtype::bf16) return f(T(), bf16());
        throw LogicError(
            fmt::format("adam: moments in {} with weights in {}", name_of(moments), name_of(master)));
    });
}

/// Calls f(G) for the type of the gradient: that of sums, or bf16 if the weights are computed with in bf16.
template <class T, class F>
void dispatch_gradient(Dtype gradient, const Tensor& weights, F&& f) {
    if (gradient == dtype_of<Acc<T>>()) return f(Acc<T>());
    if constexpr (!std::is_same_v<T, double>)
        if (gradient == Dtype::bf16 && weights.dtype == Dtype::bf16) return f(bf16());
    throw LogicError(
        fmt::format("adam: a gradient in {} for weights in {}", name_of(gradient), name_of(weights.dtype)));
}

/// Updates `count` elements. `compute` may be null. bits(first) returns a function of j that gives 64 random
/// bits for element first + j; it is called only if T is bf16. A team on GPUs also passes the number of
/// elements from `first` on that it updates together.
template <class Team, class T, class M, class G, class C, class Bits>
COEUS_HD void adam_row(const Team& team, T* master, M* exp_avg, M* exp_avg_sq, const G* grad, C* compute,
                       int64_t count, const AdamFactors<Acc<T>>& factors, const Bits& bits) {
    using A = Acc<T>;
    const auto update = [=](int64_t start, auto... together) {
        return [=, random = bits(start, together...)](int64_t j, A gradient, T& weight, M& first, M& second) {
            A w = load(weight), m = load(first), v = load(second);
            adam_update(w, m, v, gradient, factors);
            if constexpr (std::is_same_v<T, bf16>) {
                const uint64_t drawn = random(j);
                weight = round_stochastically(w, uint32_t(drawn));
                first = round_stochastically(m, uint32_t(drawn >> 16));
                second = round_stochastically(v, uint32_t(drawn >> 32));
            } else {
                weight = w;  // was updated with the moments before they are rounded
                first = store<M>(m);
                second = store<M>(v);
            }
        };
    };
    team.update(count, compute, update, grad, master, exp_avg, exp_avg_sq);
}

}  // namespace coeus::rows
