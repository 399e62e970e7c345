// SPDX-License-Identifier: Apache-2.0
// Momentum, and the update of weights along a direction, over a run of elements. bf16 weights are rounded
// stochastically.
#pragma once

#include "stochastic_rounding.hpp"
#include "team.hpp"

namespace coeus::rows {

/// buffer = mu buffer + (1 - mu) g, where g = clip * direction. Then direction = buffer, or with Nesterov
/// momentum direction = (1 - mu) g + mu buffer.
template <class Team, class A>
COEUS_HD void momentum_row(const Team& team, A* buffer, A* direction, int64_t count,
                           const MomentumOptions& options, A clip) {
    const A mu = A(options.momentum), rest = A(1 - options.momentum);
    const bool nesterov = options.nesterov;
    team.map_two(
        count, buffer, direction,
        [=](A b, A gradient) -> Two<A> {
            const A g = rest * (clip * gradient), next = multiply_add(mu, b, g);
            return {next, nesterov ? multiply_add(mu, next, g) : next};
        },
        buffer, direction);
}

/// x = x / max(norm, smallest), where the norm is rounded to the type of x.
template <class Team, class T>
COEUS_HD void normalize_row(const Team& team, T* x, int64_t count, double squared_norm, double smallest) {
    using A = Acc<T>;
    const A norm = load(store<T>(A(std::sqrt(squared_norm)))), least = A(smallest);
    const A divisor = norm < least ? least : norm;  // keeps NaN
    team.map(
        count, x, [=](A v) { return v / divisor; }, x);
}

/// out = alpha a + beta b.
template <class Team, class T>
COEUS_HD void scaled_sum_row(const Team& team, T* out, Acc<T> alpha, const T* a, Acc<T> beta, const Acc<T>* b,
                             int64_t count) {
    using A = Acc<T>;
    team.map(
        count, out, [=](A x, A y) { return multiply_add(alpha, x, beta * y); }, a, b);
}

/// The factors of one step along a direction, in the type of computation.
template <class A>
struct DescentFactors {
    A keep;  ///< multiplies the weight: 1 - learning rate * decay
    A size;  ///< learning rate * factor
};
template <class A>
COEUS_HD DescentFactors<A> descent_factors(const DescentOptions& o, const StepScalars& step) {
    const GroupScalars& s = step.groups[o.group];
    return {A(s.keep()), A(s.learning_rate * o.factor)};
}

/// `compute` may be null; `bits` as in adam_row.
template <class Team, class T, class C, class Bits>
COEUS_HD void descent_row(const Team& team, T* master, const Acc<T>* direction, C* compute, int64_t count,
                          const DescentFactors<Acc<T>>& factors, const Bits& bits) {
    using A = Acc<T>;
    const auto update = [=](int64_t start, auto... together) {
        return [=, random = bits(start, together...)](int64_t j, A d, T& weight) {
            const A w = multiply_add(-factors.size, d, load(weight) * factors.keep);
            if constexpr (std::is_same_v<T, bf16>)
                weight = round_stochastically(w, uint32_t(random(j)));
            else
                weight = w;
        };
    };
    team.update(count, compute, update, direction, master);
}

}  // namespace coeus::rows
