// SPDX-License-Identifier: Apache-2.0
// The kernels of mixtures of experts by their definitions.
#include "naive.hpp"
#include "naive_elements.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace coeus::test {

namespace {

std::vector<double> scores_of(Tensor logits, int64_t t, const RouteOptions& o) {
    std::vector<double> scores;
    double total = 0;
    for (int64_t e = 0; e < logits.cols(); ++e) {
        const double x = at(logits, t, e);
        scores.push_back(o.sigmoid ? sigmoid(x) : std::exp(x));
        total += scores.back();
    }
    for (double& s : scores)
        if (!o.sigmoid) s /= total;
    return scores;
}
double sum_of_chosen(const std::vector<double>& scores, Tensor experts, int64_t t, const RouteOptions& o) {
    double sum = o.normalise ? 1e-20 : 1;
    for (int64_t j = 0; o.normalise && j < o.top_k; ++j) sum += scores[size_t(at(experts, t, j))];
    return sum;
}

// Sorts experts and groups by value; equal ones keep the order of their numbers.
void route(Exec&, Tensor experts, Tensor weights, Tensor loads, Tensor logits, Tensor bias,
           const RouteOptions& o) {
    const int64_t count = logits.cols(), size = count / o.groups;
    for (int64_t t = 0; t < logits.rows(); ++t) {
        const std::vector<double> scores = scores_of(logits, t, o);
        const auto value = [&](int64_t e) { return scores[size_t(e)] + (bias ? element(bias, e) : 0); };
        const auto by_value = [](auto& list, auto&& f) {
            std::stable_sort(list.begin(), list.end(), [&](int64_t a, int64_t b) { return f(a) > f(b); });
        };
        std::vector<int64_t> groups, candidates, chosen;
        for (int64_t g = 0; g < o.groups; ++g) groups.push_back(g);
        by_value(groups, [&](int64_t g) {
            std::vector<double> values;
            for (int64_t e = g * size; e < (g + 1) * size; ++e) values.push_back(value(e));
            std::sort(values.rbegin(), values.rend());
            return values[0] + (values.size() > 1 ? values[1] : 0);
        });
        groups.resize(size_t(o.kept_groups));
        std::sort(groups.begin(), groups.end());
        for (const int64_t g : groups)
            for (int64_t e = g * size; e < (g + 1) * size; ++e) candidates.push_back(e);
        by_value(candidates, value);
        for (int64_t j = 0; j < o.top_k; ++j)
            chosen.push_back(o.round_robin ? (t * o.top_k + j) % count : candidates[size_t(j)]);
        std::sort(chosen.begin(), chosen.end());
        for (int64_t j = 0; j < o.top_k; ++j) set(experts, t, j, double(chosen[size_t(j)]));
        for (int64_t j = 0; j < o.top_k; ++j) {
            const size_t e = size_t(chosen[size_t(j)]);
            set(weights, t, j, o.scale * scores[e] / sum_of_chosen(scores, experts, t, o));
            if (loads) set_element(loads, int64_t(e), element(loads, int64_t(e)) + 1);
        }
    }
}

// With every partial derivative of a weight by a score, and of a score by a logit, written out.
void route_backward(Exec&, Tensor dlogits, Tensor dweights, Tensor logits, Tensor experts,
                    const RouteOptions& o) {
    for (int64_t t = 0; t < logits.rows(); ++t) {
        const std::vector<double> s = scores_of(logits, t, o);
        const double sum = sum_of_chosen(s, experts, t, o);
        std::vector<double> dscores(s.size(), 0);
        for (int64_t i = 0; i < o.top_k; ++i)
            for (int64_t j = 0; j < o.top_k; ++j) {
                const size_t e = size_t(at(experts, t, i)), f = size_t(at(experts, t, j));
                const double own = e == f ? 1 / sum : 0, shared = o.normalise ? s[f] / (sum * sum) : 0;
                dscores[e] += at(dweights, t, j) * o.scale * (own - shared);
            }
        for (size_t e = 0; e < s.size(); ++e) {
            double d = 0;
            for (size_t f = 0; f < s.size(); ++f)
                d += dscores[f] *
                     (o.sigmoid ? (e == f ? s[e] * (1 - s[e]) : 0) : s[f] * ((e == f ? 1 : 0) - s[e]));
            set(dlogits, t, int64_t(e), d);
        }
    }
}

void group_by_expert(Exec&, Tensor slots, Tensor sources, const Groups& groups, Tensor experts,
                     int64_t* overflow) {
    for (int64_t i = 0; i < sources.count(); ++i) set_element(sources, i, -1);
    for (int64_t a = 0; a < experts.count(); ++a) set_element(slots, a, -1);
    std::vector<int64_t> counts(size_t(groups.number()), 0);
    for (int64_t a = 0; a < experts.count(); ++a)
        if (index_at(experts, a) >= 0) ++counts[size_t(index_at(experts, a))];
    int64_t needed = 0;
    for (const int64_t count : counts) needed += round_up(count, groups.multiple);
    if (needed > sources.count()) {
        *overflow = 1;
        for (int64_t g = 0; g < groups.number(); ++g) {
            set_element(groups.begins, g, 0);
            set_element(groups.counts, g, 0);
        }
        return;
    }
    int64_t row = 0;
    for (int64_t g = 0; g < groups.number(); ++g) {
        set_element(groups.begins, g, double(row));
        int64_t count = 0;
        for (int64_t a = 0; a < experts.count(); ++a)
            if (index_at(experts, a) == g) {
                set_element(slots, a, double(row + count));
                set_element(sources, row + count++, double(a));
            }
        set_element(groups.counts, g, double(count));
        row += round_up(count, groups.multiple);
    }
}

// Goes through the ranks and parts of tokens, and looks for the first choice that each token has there.
void units_of_rows(Exec&, Tensor units, Tensor assignments, Tensor experts, const RankRows& ranks) {
    const int64_t n = experts.rows(), k = experts.cols();
    for (int64_t a = 0; a < units.count(); ++a) set_element(units, a, -1);
    int64_t last = 0;
    for (int64_t a = 0; a < experts.count(); ++a) last = std::max(last, index_at(experts, a));
    for (int64_t rank = 0; rank <= last / ranks.experts; ++rank)
        for (int64_t part = 0; part < ranks.parts; ++part) {
            const int64_t size = div_ceil(n, ranks.parts), unit = rank * ranks.parts + part;
            int64_t count = 0;
            for (int64_t t = part * size; t < std::min(n, (part + 1) * size); ++t) {
                bool is_first = true;
                for (int64_t j = 0; j < k; ++j) {
                    const int64_t expert = index_at(experts, t * k + j) - rank * ranks.experts;
                    if (expert < 0 || expert >= ranks.experts) continue;
                    if (is_first) set_element(units, t * k + j, double(unit));
                    is_first = false;
                    ++count;
                }
            }
            if (assignments) set_element(assignments, unit, double(count));
        }
    if (!assignments) return;
    for (int64_t unit = (last / ranks.experts + 1) * ranks.parts; unit < assignments.count(); ++unit)
        set_element(assignments, unit, 0);
}

// Lists the experts on the rank of each row's source.
void choices_of_rows(Exec&, Tensor choices, Tensor numbers, Tensor places, Tensor slots, Tensor sources,
                     Tensor experts, Tensor weights, const RankRows& ranks) {
    const int64_t k = experts.cols(), m = choices.cols();
    const auto rank_of = [&](int64_t a) { return index_at(experts, a) / ranks.experts; };
    for (int64_t row = 0; row < choices.rows(); ++row) {
        int64_t found = 0;
        if (const int64_t source = index_at(sources, row); source >= 0)
            for (int64_t a = source / k * k; a < source / k * k + k; ++a) {
                if (rank_of(a) != rank_of(source)) continue;
                set_element(choices, row * m + found, double(index_at(experts, a) % ranks.experts));
                set(numbers, row, found++, element(weights, a));
            }
        for (; found < m; ++found) {
            set_element(choices, row * m + found, -1);
            set(numbers, row, found, 0);
        }
    }
    for (int64_t a = 0; a < experts.count(); ++a) {
        int64_t first = a / k * k;
        while (rank_of(first) != rank_of(a)) ++first;
        set_element(places, a, double(index_at(slots, first) * m + a - first));
    }
}

// Lists the rows of each rank's block in the order of the sorted ones.
void rows_in_blocks(Exec&, Tensor slots, Tensor sources, Tensor sorted_slots, Tensor counts,
                    int64_t* overflow) {
    const int64_t ranks = counts.count(), room = sources.count() / ranks;
    std::vector<std::pair<int64_t, int64_t>> sorted;  // place and assignment
    for (int64_t a = 0; a < slots.count(); ++a) {
        set_element(slots, a, -1);
        if (index_at(sorted_slots, a) >= 0) sorted.emplace_back(index_at(sorted_slots, a), a);
    }
    std::sort(sorted.begin(), sorted.end());
    for (int64_t i = 0; i < sources.count(); ++i) set_element(sources, i, -1);
    auto next = sorted.begin();
    for (int64_t rank = 0; rank < ranks; ++rank)
        for (int64_t i = 0; i < index_at(counts, rank); ++i, ++next) {
            const bool fits = i < room;
            set_element(slots, next->second, double(rank * room + (fits ? i : room - 1)));
            if (fits) set_element(sources, rank * room + i, double(next->second));
            if (!fits) *overflow = 1;
        }
}

void gather_rows(Exec&, Tensor out, Tensor in, Tensor sources, int64_t per) {
    for (int64_t i = 0; i < out.rows(); ++i)
        for (int64_t j = 0; j < out.cols(); ++j)
            set(out, i, j, index_at(sources, i) < 0 ? 0 : at(in, index_at(sources, i) / per, j));
}

void sum_rows(Exec&, Tensor y, Tensor plus, Tensor rows, Tensor slots) {
    for (int64_t t = 0; t < y.rows(); ++t)
        for (int64_t i = 0; i < y.cols(); ++i) {
            double sum = plus ? at(plus, t, i) : 0;
            for (int64_t j = 0; j < slots.cols(); ++j)
                if (const auto slot = int64_t(at(slots, t, j)); slot >= 0) sum += at(rows, slot, i);
            set(y, t, i, sum);
        }
}

void grouped_gemm(Exec&, Tensor d, Tensor a, Operand b, const Groups& groups) {
    const int64_t depth = a.cols();
    for_rows(groups, [&](int64_t i, int64_t g, bool is_padding) {
        for (int64_t j = 0; j < d.cols(); ++j) {
            double sum = 0;
            for (int64_t p = 0; !is_padding && p < depth; ++p)
                sum += at(a, i, p) *
                       (b.is_transposed ? at(b.tensor, g * d.cols() + j, p) : at(b.tensor, g * depth + p, j));
            set(d, i, j, sum);
        }
    });
}

void grouped_gemm_weights(Exec&, Tensor d, Tensor a, Tensor b, Tensor c, const Groups& groups) {
    if (!c)
        for (int64_t i = 0; i < d.rows(); ++i)
            for (int64_t j = 0; j < d.cols(); ++j) set(d, i, j, 0);
    for_rows(groups, [&](int64_t i, int64_t g, bool is_padding) {
        for (int64_t o = 0; !is_padding && o < a.cols(); ++o)
            for (int64_t j = 0; j < b.cols(); ++j) {
                const int64_t row = g * a.cols() + o;
                set(d, row, j, at(d, row, j) + at(a, i, o) * at(b, i, j));
            }
    });
}

void add_group_bias(Exec&, Tensor y, Tensor bias, Tensor scale, const Groups& groups) {
    for_rows(groups, [&](int64_t i, int64_t g, bool is_padding) {
        for (int64_t j = 0; !is_padding && j < y.cols(); ++j)
            set(y, i, j, at(y, i, j) + (scale ? element(scale, i) : 1) * at(bias, g, j));
    });
}

void add_group_bias_backward(Exec&, Tensor dbias, Tensor dscale, Tensor dy, Tensor bias, Tensor scale,
                             const Groups& groups) {
    for_rows(groups, [&](int64_t i, int64_t g, bool is_padding) {
        if (is_padding) return;
        double dot = 0;
        for (int64_t j = 0; j < dy.cols(); ++j) {
            dot += at(dy, i, j) * at(bias, g, j);
            set(dbias, g, j, at(dbias, g, j) + (scale ? element(scale, i) : 1) * at(dy, i, j));
        }
        if (dscale) set_element(dscale, i, dot);
    });
}

struct GateInputs {
    int64_t gate, up;         // their columns
    double first_g, first_u;  // as they are
    double by_input, by_result;
    double g, u;  // scaled and clamped
    bool g_clamped, u_clamped;
    GateInputs(Tensor gate_up, Tensor scale, int64_t i, int64_t j, const Gate& o) {
        gate = o.interleaved ? 2 * j : j;
        up = o.interleaved ? 2 * j + 1 : gate_up.cols() / 2 + j;
        const double factor = scale ? element(scale, i) : 1;
        by_input = o.scales_input ? factor : 1;
        by_result = o.scales_input ? 1 : factor;
        first_g = at(gate_up, i, gate);
        first_u = at(gate_up, i, up);
        const double x = by_input * first_g, y = by_input * first_u;
        g = o.limit > 0 ? std::min(x, o.limit) : x;
        u = o.limit > 0 ? std::clamp(y, -o.limit, o.limit) : y;
        g_clamped = g != x;
        u_clamped = u != y;
    }
};

// The activation and its derivative.
double curve(double g, const Gate& o) {
    return o.activation == Activation::silu ? g * sigmoid(o.alpha * g) : gelu(g);
}
double curve_slope(double g, const Gate& o) {
    const double s = sigmoid(o.alpha * g);
    return o.activation == Activation::silu ? s + g * o.alpha * s * (1 - s) : gelu_slope(g);
}

// Calls f(row) for those of groups and their padding; without groups, for all of y.
template <class F>
void for_gated_rows(const Groups& groups, const Tensor& y, const F& f) {
    if (groups) return for_rows(groups, [&](int64_t i, int64_t, bool) { f(i); });
    for (int64_t i = 0; i < y.rows(); ++i) f(i);
}

void gate(Exec&, Tensor y, Tensor gate_up, Tensor scale, const Groups& groups, const Gate& o) {
    for_gated_rows(groups, y, [&](int64_t i) {
        for (int64_t j = 0; j < y.cols(); ++j) {
            const GateInputs in(gate_up, scale, i, j, o);
            set(y, i, j, in.by_result * (in.u + o.shift) * curve(in.g, o));
        }
    });
}

void gate_backward(Exec& exec, Tensor dgate_up, Tensor dscale, Tensor y, Tensor dy, Tensor gate_up,
                   Tensor scale, const Groups& groups, const Gate& o) {
    const OwnedTensor result(Dtype::f64, {dy.rows(), 2 * dy.cols()});
    if (y) gate(exec, y, gate_up, scale, groups, o);
    for_gated_rows(groups, dy, [&](int64_t i) {
        double dot = 0;
        for (int64_t j = 0; j < dy.cols(); ++j) {
            const GateInputs in(gate_up, scale, i, j, o);
            const double value = curve(in.g, o), d = at(dy, i, j);
            const double du = in.u_clamped ? 0 : d * value;
            const double dg = in.g_clamped ? 0 : d * (in.u + o.shift) * curve_slope(in.g, o);
            dot += o.scales_input ? dg * in.first_g + du * in.first_u : d * (in.u + o.shift) * value;
            set(result, i, in.up, in.by_input * in.by_result * du);
            set(result, i, in.gate, in.by_input * in.by_result * dg);
        }
        if (dscale) set_element(dscale, i, dot);
        for (int64_t j = 0; j < 2 * dy.cols(); ++j) set(dgate_up, i, j, at(result, i, j));
    });
}

void count_by_sequence(Exec&, Tensor counts, Tensor experts, const SequenceRows& rows) {
    for (int64_t i = 0; i < counts.count(); ++i) set_element(counts, i, 0);
    for (int64_t t = 0; t < experts.rows(); ++t)
        for (int64_t j = 0; j < experts.cols(); ++j) {
            const int64_t b = (rows.first + t) / rows.length, e = int64_t(at(experts, t, j));
            set(counts, b, e, at(counts, b, e) + 1);
        }
}

// With every partial derivative of p by a score, and of a score by a logit, written out.
void balance_sequences(Exec&, Tensor dlogits, Tensor losses, Tensor logits, Tensor counts,
                       const SequenceRows& rows, double coefficient, const RouteOptions& o,
                       const StepScalars& scalars) {
    const int64_t experts = logits.cols();
    for (int64_t t = 0; t < logits.rows(); ++t) {
        const std::vector<double> s = scores_of(logits, t, o);
        const int64_t b = (rows.first + t) / rows.length;
        double sum = 0, chosen = 0, loss = 0;
        for (int64_t e = 0; e < experts; ++e) {
            sum += s[size_t(e)];
            chosen += at(counts, b, e);
        }
        const auto df = [&](int64_t e) {
            return coefficient * scalars.loss_scale * double(experts) * at(counts, b, e) / chosen;
        };
        for (int64_t e = 0; e < experts; ++e) loss += df(e) * s[size_t(e)] / sum;
        set_element(losses, t, loss);
        for (int64_t e = 0; e < experts; ++e) {
            double gradient = 0;
            for (int64_t i = 0; i < experts; ++i)        // p_i
                for (int64_t j = 0; j < experts; ++j) {  // s_j
                    const double si = s[size_t(i)], sj = s[size_t(j)], se = s[size_t(e)], same = j == e;
                    const double by_score = (i == j ? 1 / sum : 0) - si / (sum * sum),
                                 by_logit = o.sigmoid ? same * se * (1 - se) : sj * (same - se);
                    gradient += df(i) * by_score * by_logit;
                }
            set(dlogits, t, e, at(dlogits, t, e) + gradient);
        }
    }
}

void balance_experts(Exec&, Tensor bias, Tensor loads, double rate, const StepScalars&) {
    const int64_t experts = bias.count();
    double total = 0, mean = 0;
    for (int64_t e = 0; e < experts; ++e) total += element(loads, e);
    std::vector<double> updates;
    for (int64_t e = 0; e < experts; ++e) {
        const double lacks = total / double(experts) - element(loads, e);
        updates.push_back(lacks > 0 ? rate : lacks < 0 ? -rate : 0);
        mean += updates.back() / double(experts);
    }
    for (int64_t e = 0; e < experts; ++e) set_element(bias, e, element(bias, e) + updates[size_t(e)] - mean);
}

}  // namespace

Kernels with_experts(Kernels table) {
    table.route = route;
    table.route_backward = route_backward;
    table.group_by_expert = group_by_expert;
    table.units_of_rows = units_of_rows;
    table.choices_of_rows = choices_of_rows;
    table.rows_in_blocks = rows_in_blocks;
    table.gather_rows = gather_rows;
    table.sum_rows = sum_rows;
    table.grouped_gemm = grouped_gemm;
    table.grouped_gemm_weights = grouped_gemm_weights;
    table.add_group_bias = add_group_bias;
    table.add_group_bias_backward = add_group_bias_backward;
    table.gate = gate;
    table.gate_backward = gate_backward;
    table.count_by_sequence = count_by_sequence;
    table.balance_sequences = balance_sequences;
    table.balance_experts = balance_experts;
    return table;
}

}  // namespace coeus::test
