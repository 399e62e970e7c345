// SPDX-License-Identifier: Apache-2.0
// Routing of one token: scores from logits, the choice of experts, their weights, and the gradient; and
// losses and biases that balance the loads of experts. `scores` and `choice` are scratch memory of E elements
// that all threads of the team share.
#pragma once

#include "team.hpp"

#include <limits>

namespace coeus::rows {

/// scores[e]: sigmoid or softmax of the logits.
template <class Team, class A>
COEUS_HD void expert_scores(const Team& team, A* scores, const A* logits, int64_t experts,
                            const RouteOptions& o) {
    if (o.sigmoid) {
        team.each(experts, [=](int64_t e) { scores[e] = A(1) / (A(1) + std::exp(-logits[e])); });
    } else {
        const A largest = team.template largest<A>(experts, logits);
        team.each(experts, [=](int64_t e) { scores[e] = std::exp(logits[e] - largest); });
        team.barrier();
        const A total = team.template sum<A>(
            experts, [](A p) { return p; }, scores);
        team.each(experts, [=](int64_t e) { scores[e] /= total; });
    }
    team.barrier();
}

/// Sets choice[e] = -infinity for the experts of all groups but the best kept_groups.
template <class Team, class A>
COEUS_HD void keep_best_groups(const Team& team, A* choice, int64_t experts, const RouteOptions& o) {
    const int64_t size = experts / o.groups;
    const auto value_of = [=](int64_t group) {
        A best = -std::numeric_limits<A>::infinity(), second = best;
        for (int64_t e = group * size; e < (group + 1) * size; ++e) {
            const A v = choice[e];
            second = v > best ? best : v > second ? v : second;
            best = v > best ? v : best;
        }
        return best + second;
    };
    // a thread decides about its groups, and all have decided before one of them writes
    constexpr int64_t most = 64;
    uint64_t dropped = 0;
    for (int64_t group = 0; group < o.groups && group < most; ++group) {
        const A own = value_of(group);
        int64_t better = 0;
        for (int64_t other = 0; other < o.groups; ++other) {
            const A v = value_of(other);
            better += v > own || (v == own && other < group);
        }
        if (better >= o.kept_groups) dropped |= uint64_t(1) << group;
    }
    team.barrier();
    team.each(experts, [=](int64_t e) {
        if (dropped >> (e / size) & 1) choice[e] = -std::numeric_limits<A>::infinity();
    });
    team.barrier();
}

/// Chooses top_k experts, in ascending order, from their scores. `bias` may be null.
template <class Team, class A>
COEUS_HD void choose_experts(const Team& team, int32_t* chosen, A* choice, const A* scores, const A* bias,
                             int64_t experts, int64_t token, const RouteOptions& o) {
    const int64_t k = o.top_k;
    if (!o.round_robin) {
        team.each(experts, [=](int64_t e) { choice[e] = bias ? scores[e] + bias[e] : scores[e]; });
        team.barrier();
        if (o.kept_groups < o.groups) keep_best_groups(team, choice, experts, o);
    }
    for (int64_t j = 0; j < k; ++j) {
        const int64_t best = o.round_robin ? (token * k + j) % experts : team.best(experts, choice);
        team.barrier();
        if (team.first()) {
            int64_t place = j;
            for (; place > 0 && chosen[place - 1] > best; --place) chosen[place] = chosen[place - 1];
            chosen[place] = int32_t(best);
            if (!o.round_robin) choice[best] = -std::numeric_limits<A>::infinity();
        }
        team.barrier();
    }
}

/// The sum by which the scores of chosen experts are divided.
template <class A>
COEUS_HD A score_sum(const int32_t* chosen, const A* scores, const RouteOptions& o) {
    if (!o.normalise) return A(1);
    A sum = 0;
    for (int64_t j = 0; j < o.top_k; ++j) sum += scores[chosen[j]];
    return sum + A(1e-20);
}

template <class Team, class A>
COEUS_HD void expert_weights(const Team& team, A* weights, const int32_t* chosen, const A* scores,
                             const RouteOptions& o) {
    const A factor = A(o.scale) / score_sum(chosen, scores, o);
    team.each(o.top_k, [=](int64_t j) { weights[j] = factor * scores[chosen[j]]; });
}

/// dlogits from dweights. With w_j = scale s_j / S: ds_j = scale (dw_j / S - sum_i dw_i s_i / S^2).
template <class Team, class A>
COEUS_HD void route_gradient(const Team& team, A* dlogits, const A* dweights, const int32_t* chosen,
                             const A* scores, int64_t experts, const RouteOptions& o) {
    const int64_t k = o.top_k;
    const A sum = score_sum(chosen, scores, o), factor = A(o.scale) / sum;
    A pull = 0;  // common to the gradients of all chosen scores
    for (int64_t j = 0; o.normalise && j < k; ++j) pull += dweights[j] * scores[chosen[j]] / sum;
    const auto dscore = [=](int64_t j) { return factor * (dweights[j] - pull); };
    A dot = 0;  // of the softmax
    for (int64_t j = 0; j < k; ++j) dot += dscore(j) * scores[chosen[j]];
    const bool sigmoid = o.sigmoid;
    team.each(experts, [=](int64_t e) {
        A own = 0;
        for (int64_t j = 0; j < k; ++j)
            if (chosen[j] == e) own = dscore(j);
        const A s = scores[e];
        dlogits[e] = sigmoid ? own * s * (A(1) - s) : s * (own - dot);
    });
}

/// Returns the loss of a token that balances the experts within its sequence, factor sum over e of f_e p_e,
/// for p_e = s_e / S and f_e = counts[e] / mean count. Adds its gradient to dlogits: ds_e = factor (f_e -
/// sum_i f_i p_i) / S. A softmax has S = 1, and its derivative subtracts nothing more.
template <class Team, class A>
COEUS_HD A balance_sequence(const Team& team, A* dlogits, const A* scores, const int64_t* counts,
                            int64_t experts, A factor, const RouteOptions& o) {
    const bool sigmoid = o.sigmoid;
    const A sum =
        sigmoid ? team.template sum_of<A>(experts, [=](int64_t e) { return scores[e]; }) + A(1e-20) : A(1);
    const int64_t all = team.template sum_of<int64_t>(experts, [=](int64_t e) { return counts[e]; });
    const A scale = factor * A(experts) / A(all);
    const A expected =
        team.template sum_of<A>(experts, [=](int64_t e) { return A(counts[e]) * scores[e] / sum; });
    team.each(experts, [=](int64_t e) {
        const A own = scale * (A(counts[e]) - expected) * scores[e] / sum;
        dlogits[e] += sigmoid ? own * (A(1) - scores[e]) : own;
    });
    return scale * expected;
}

/// bias += u - mean u, with u[e] = rate sign(mean load - load). Sums of integers decide the signs and their
/// mean, so the bits depend on the loads alone.
template <class Team, class A>
COEUS_HD void balance_experts(const Team& team, A* bias, const int64_t* loads, int64_t experts, double rate) {
    const int64_t total = team.template sum_of<int64_t>(experts, [=](int64_t e) { return loads[e]; });
    const auto sign = [=](int64_t e) {
        const int64_t over = loads[e] * experts;
        return over < total ? 1 : over > total ? -1 : 0;
    };
    const double mean =
        rate * double(team.template sum_of<int64_t>(experts, [=](int64_t e) { return int64_t(sign(e)); })) /
        double(experts);
    team.each(experts, [=](int64_t e) { bias[e] = A(double(bias[e]) + (rate * sign(e) - mean)); });
}

}  // namespace coeus::rows
