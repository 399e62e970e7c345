// SPDX-License-Identifier: Apache-2.0
// Routing of tokens to experts, and the permutation of rows that it implies.
#include "../../rows/routing.hpp"

#include "../cpu.hpp"
#include "../workspace.hpp"

namespace coeus::cpu {

namespace {

void check_route(Tensor logits, Tensor experts, Tensor weights, const RouteOptions& o) {
    const int64_t n = logits.rows(), count = logits.cols();
    require(experts.rows() == n && experts.cols() == o.top_k && weights.shape == experts.shape &&
                experts.dense() && weights.dense() && weights.dtype == logits.dtype,
            "route: operands differ in shape or type");
    require(o.groups > 0 && count % o.groups == 0 && o.kept_groups >= 1 && o.kept_groups <= o.groups &&
                o.groups <= 64 && o.top_k >= 1 && o.top_k <= count / o.groups * o.kept_groups,
            "route: so many experts cannot be chosen");
}

template <class F>
void dispatch_acc(Dtype type, F&& f) {
    if (type == Dtype::f64) return f(double());
    require(type == Dtype::f32, "logits are in the accumulation type");
    f(float());
}

// Calls each(t, scores, choice) for each token, with scratch memory for both.
template <class A, class Each>
void for_tokens(Exec& exec, const Tensor& logits, Each&& each) {
    const Scope scope(exec.workspace);
    const int64_t experts = logits.cols(),
                  per_thread = workspace::route_per_thread(logits) / int64_t(sizeof(A));
    A* scratch = static_cast<A*>(
        exec.workspace.alloc(Dtype::u8, {exec.threads * workspace::route_per_thread(logits)}).data);
    parallel_rows(exec, logits.rows(), 8 * experts, [&](int64_t t) {
        A* scores = scratch + thread_index() * per_thread;
        each(t, scores, scores + experts);
    });
}

}  // namespace

void Cpu::route(Exec& exec, Tensor experts, Tensor weights, Tensor loads, Tensor logits, Tensor bias,
                const RouteOptions& o) {
    check_route(logits, experts, weights, o);
    const int64_t count = logits.cols();
    require((!bias || (bias.count() == count && bias.dtype == logits.dtype)) &&
                (!loads || loads.count() == count),
            "route: operands differ in shape or type");
    dispatch_acc(logits.dtype, [&]<class A>(A) {
        const A* biases = bias ? bias.as<const A>() : nullptr;
        for_tokens<A>(exec, logits, [&](int64_t t, A* scores, A* choice) {
            int32_t* chosen = experts.row<int32_t>(t);
            expert_scores(Lane(), scores, logits.row<const A>(t), count, o);
            choose_experts(Lane(), chosen, choice, scores, biases, count, t, o);
            expert_weights(Lane(), weights.row<A>(t), chosen, scores, o);
        });
    });
    if (!loads) return;
    int64_t* load = loads.as<int64_t>();
    const int32_t* chosen = experts.as<const int32_t>();
    for (int64_t a = 0; a < experts.count(); ++a) ++load[chosen[a]];
}

void Cpu::route_backward(Exec& exec, Tensor dlogits, Tensor dweights, Tensor logits, Tensor experts,
                         const RouteOptions& o) {
    check_route(logits, experts, dweights, o);
    require(dlogits.shape == logits.shape, "route: operands differ in shape");
    dispatch_acc(logits.dtype, [&]<class A>(A) {
        for_tokens<A>(exec, logits, [&](int64_t t, A* scores, A*) {
            expert_scores(Lane(), scores, logits.row<const A>(t), logits.cols(), o);
            route_gradient(Lane(), dlogits.row<A>(t), dweights.row<const A>(t), experts.row<const int32_t>(t),
                           scores, logits.cols(), o);
        });
    });
}

void Cpu::group_by_expert(Exec&, Tensor slots, Tensor sources, const Groups& groups, Tensor experts,
                          int64_t* overflow) {
    const int64_t assignments = experts.count(), number = groups.number(), rows = sources.count();
    require(slots.count() == assignments &&
                (overflow || rows >= grouped_rows(assignments, number, groups.multiple)),
            "group_by_expert: operands do not fit");
    const int32_t* expert = experts.as<const int32_t>();
    int32_t *begins = groups.begins.as<int32_t>(), *counts = groups.counts.as<int32_t>();
    int32_t *slot = slots.as<int32_t>(), *source = sources.as<int32_t>();
    std::fill(counts, counts + number, 0);
    // the place within the group
    for (int64_t a = 0; a < assignments; ++a) slot[a] = expert[a] < 0 ? -1 : counts[expert[a]]++;
    int64_t begin = 0;
    for (int64_t g = 0; g < number; ++g) {
        begins[g] = int32_t(begin);
        begin += round_up(counts[g], groups.multiple);
    }
    std::fill(source, source + rows, -1);
    if (begin > rows) {
        *overflow = 1;
        std::fill(begins, begins + number, 0);
        std::fill(counts, counts + number, 0);
        std::fill(slot, slot + assignments, -1);
        return;
    }
    for (int64_t a = 0; a < assignments; ++a) {
        if (expert[a] < 0) continue;
        slot[a] += begins[expert[a]];
        source[slot[a]] = int32_t(a);
    }
}

void Cpu::units_of_rows(Exec&, Tensor units, Tensor assignments, Tensor experts, const RankRows& ranks) {
    const int64_t n = experts.rows(), k = experts.cols();
    require(units.shape == experts.shape && units.dense() && experts.dense(),
            "units_of_rows: operands do not fit");
    int32_t* const count = assignments ? assignments.as<int32_t>() : nullptr;
    if (count) std::fill_n(count, assignments.count(), 0);
    for (int64_t t = 0; t < n; ++t) {
        const int32_t* expert = experts.row<const int32_t>(t);
        int32_t* unit = units.row<int32_t>(t);
        for (int64_t j = 0; j < k; ++j) {
            const int64_t own = ranks.unit(expert[j], t, n);
            unit[j] = j > 0 && ranks.unit(expert[j - 1], t, n) == own ? -1 : int32_t(own);
            if (count) ++count[own];
        }
    }
}

void Cpu::choices_of_rows(Exec&, Tensor choices, Tensor numbers, Tensor places, Tensor slots, Tensor sources,
                          Tensor experts, Tensor weights, const RankRows& ranks) {
    const int64_t n = experts.rows(), k = experts.cols(), m = choices.cols();
    require(choices.rows() == sources.count() && numbers.shape == choices.shape &&
                places.shape == experts.shape && slots.shape == experts.shape &&
                weights.shape == experts.shape && weights.dtype == numbers.dtype,
            "choices_of_rows: operands differ in shape or type");
    dispatch_acc(numbers.dtype, [&]<class A>(A) {
        for (int64_t row = 0; row < choices.rows(); ++row) {
            const int64_t source = sources.as<const int32_t>()[row];
            int32_t* choice = choices.row<int32_t>(row);
            A* number = numbers.row<A>(row);
            std::fill_n(choice, m, -1);
            std::fill_n(number, m, A(0));
            if (source < 0) continue;
            const int64_t t = source / k, first = source % k;
            const int32_t* expert = experts.row<const int32_t>(t);
            for (int64_t j = first; j < k && ranks.rank_of(expert[j]) == ranks.rank_of(expert[first]); ++j) {
                choice[j - first] = int32_t(expert[j] % ranks.experts);
                number[j - first] = weights.row<const A>(t)[j];
            }
        }
    });
    for (int64_t t = 0; t < n; ++t) {
        const int32_t* expert = experts.row<const int32_t>(t);
        int64_t first = 0;
        for (int64_t j = 0; j < k; ++j) {
            if (ranks.rank_of(expert[j]) != ranks.rank_of(expert[first])) first = j;
            places.row<int32_t>(t)[j] = int32_t(slots.row<const int32_t>(t)[first] * m + j - first);
        }
    }
}

void Cpu::rows_in_blocks(Exec&, Tensor slots, Tensor sources, Tensor sorted, Tensor counts,
                         int64_t* overflow) {
    const int64_t ranks = counts.count(), room = sources.count() / ranks;
    require(
        slots.dense() && sorted.dense() && slots.count() == sorted.count() && sources.count() % ranks == 0,
        "rows_in_blocks: operands do not fit");
    int32_t *slot = slots.as<int32_t>(), *source = sources.as<int32_t>();
    const int32_t *from = sorted.as<const int32_t>(), *rows = counts.as<const int32_t>();
    std::fill_n(source, sources.count(), -1);
    for (int64_t a = 0; a < slots.count(); ++a) {
        slot[a] = -1;
        if (from[a] < 0) continue;
        int64_t rank = 0, place = from[a];
        for (; rank < ranks && place >= rows[rank]; ++rank) place -= rows[rank];
        require(rank < ranks, "rows_in_blocks: a place is beyond the rows");
        if (place >= room) *overflow = 1;
        slot[a] = int32_t(rank * room + std::min(place, room - 1));
        if (place < room) source[slot[a]] = int32_t(a);
    }
}

void Cpu::gather_rows(Exec& exec, Tensor out, Tensor in, Tensor sources, int64_t per) {
    require(sources.count() == out.rows() && in.cols() == out.cols() && in.dtype == out.dtype,
            "gather_rows: operands differ in shape or type");
    const int32_t* source = sources.as<const int32_t>();
    dispatch(out.dtype, [&]<class T>(T) {
        parallel_rows(exec, out.rows(), out.cols(), [&](int64_t i) {
            T* to = out.row<T>(i);
            if (source[i] < 0)
                std::fill(to, to + out.cols(), T(0));
            else
                std::copy_n(in.row<const T>(source[i] / per), out.cols(), to);
        });
    });
}

void Cpu::sum_rows(Exec& exec, Tensor y, Tensor plus, Tensor rows, Tensor slots) {
    require(slots.rows() == y.rows() && slots.dense() && rows.cols() == y.cols() && rows.dtype == y.dtype &&
                (!plus || (plus.shape == y.shape && plus.dtype == y.dtype)),
            "sum_rows: operands differ in shape or type");
    const int64_t k = slots.cols();
    dispatch(y.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        parallel_rows(exec, y.rows(), (k + 1) * y.cols(), [&](int64_t t) {
            constexpr int64_t block = 256;
            const int32_t* slot = slots.row<const int32_t>(t);
            for (int64_t first = 0; first < y.cols(); first += block) {
                const int64_t count = std::min(block, y.cols() - first);
                A sums[block];
                A* sum = sums;
                bool empty = true;
                for (int64_t j = 0; j < k; ++j) {
                    if (slot[j] < 0) continue;
                    const T* row = rows.row<const T>(slot[j]) + first;
                    if (empty)
                        Lane().each(count, [=](int64_t i) { sum[i] = load(row[i]); });
                    else
                        Lane().each(count, [=](int64_t i) { sum[i] += load(row[i]); });
                    empty = false;
                }
                if (empty) std::fill_n(sums, count, A(0));
                T* to = y.row<T>(t) + first;
                const T* more = plus ? plus.row<const T>(t) + first : nullptr;
                if (more)
                    Lane().each(count, [=](int64_t i) { to[i] = store<T>(load(more[i]) + sum[i]); });
                else
                    Lane().each(count, [=](int64_t i) { to[i] = store<T>(sum[i]); });
            }
        });
    });
}

void Cpu::count_by_sequence(Exec& exec, Tensor counts, Tensor experts, const SequenceRows& rows) {
    const int64_t n = experts.rows(), k = experts.cols();
    require(n > 0 && experts.dense() && counts.dense() && rows.sequence_of(n - 1) < counts.rows(),
            "count_by_sequence: operands do not fit");
    const int32_t* expert = experts.as<const int32_t>();
    parallel_rows(exec, counts.rows(), k * rows.length, [&](int64_t b) {
        int64_t* count = counts.row<int64_t>(b);
        std::fill(count, count + counts.cols(), 0);
        for (int64_t a = k * rows.begin_of(b, n); a < k * rows.begin_of(b + 1, n); ++a) ++count[expert[a]];
    });
}

void Cpu::balance_sequences(Exec& exec, Tensor dlogits, Tensor losses, Tensor logits, Tensor counts,
                            const SequenceRows& rows, double coefficient, const RouteOptions& o,
                            const StepScalars& scalars) {
    require(
        dlogits.shape == logits.shape && losses.count() == logits.rows() && counts.cols() == logits.cols(),
        "balance_sequences: operands differ in shape");
    dispatch_acc(logits.dtype, [&]<class A>(A) {
        const A factor = A(coefficient * scalars.loss_scale);
        A* loss = losses.as<A>();
        for_tokens<A>(exec, logits, [&](int64_t t, A* scores, A*) {
            expert_scores(Lane(), scores, logits.row<const A>(t), logits.cols(), o);
            loss[t] =
                balance_sequence(Lane(), dlogits.row<A>(t), scores,
                                 counts.row<const int64_t>(rows.sequence_of(t)), logits.cols(), factor, o);
        });
    });
}

void Cpu::balance_experts(Exec&, Tensor bias, Tensor loads, double rate, const StepScalars& scalars) {
    require(bias.count() == loads.count(), "balance_experts: operands differ in shape");
    if (scalars.refusals != 0) return;
    dispatch_acc(bias.dtype, [&]<class A>(A) {
        rows::balance_experts(Lane(), bias.as<A>(), loads.as<const int64_t>(), bias.count(), rate);
    });
}

}  // namespace coeus::cpu
