// SPDX-License-Identifier: Apache-2.0
// Routing of tokens to experts, by a warp for each token, and the permutation of rows that it implies. A
// block for each expert scans all assignments, so no atomics are needed and the order is always the same.
#include "../../rows/matrix.hpp"
#include "../../rows/routing.hpp"
#include "../cuda.hpp"
#include "../ptx/mma.hpp"
#include "groups.hpp"

namespace coeus::cuda {

namespace {

constexpr int scan_threads = 1024, scan_warps = scan_threads / warp_size;

/// A warp for each token. It has the scores and the choice in shared memory.
__global__ void route_kernel(Rows<int32_t> chosen, Rows<float> weights, Rows<const float> logits,
                             const float* bias, int64_t tokens, int64_t experts, RouteOptions o) {
    const WarpTeam team;
    const int64_t warp = threadIdx.x / warp_size, t = int64_t(blockIdx.x) * (blockDim.x / warp_size) + warp;
    if (t >= tokens) return;
    float* const scores = reinterpret_cast<float*>(shared_memory()) + warp * 2 * experts;
    expert_scores(team, scores, logits[t], experts, o);
    choose_experts(team, chosen[t], scores + experts, scores, bias, experts, t, o);
    expert_weights(team, weights[t], chosen[t], scores, o);
}

__global__ void route_backward_kernel(Rows<float> dlogits, Rows<const float> dweights,
                                      Rows<const float> logits, Rows<const int32_t> chosen, int64_t tokens,
                                      int64_t experts, RouteOptions o) {
    const WarpTeam team;
    const int64_t warp = threadIdx.x / warp_size, t = int64_t(blockIdx.x) * (blockDim.x / warp_size) + warp;
    if (t >= tokens) return;
    float* const scores = reinterpret_cast<float*>(shared_memory()) + warp * 2 * experts;
    expert_scores(team, scores, logits[t], experts, o);
    route_gradient(team, dlogits[t], dweights[t], chosen[t], scores, experts, o);
}

/// A block for each expert: count = its assignments, or count += them.
template <class Count>
__global__ void count_kernel(Count* counts, const int32_t* experts, int64_t assignments, bool accumulate) {
    const BlockTeam team(shared_memory());
    const int32_t own = int32_t(blockIdx.x);
    const Count count = team.sum_of<Count>(assignments, [=](int64_t a) { return Count(experts[a] == own); });
    if (team.first()) counts[own] = accumulate ? counts[own] + count : count;
}

/// One warp. Without room for all groups in `rows` rows, all become empty.
__global__ void begins_kernel(int32_t* begins, int32_t* counts, DeviceGroups all, int64_t rows,
                              int64_t* overflow) {
    const int64_t groups = all.number;
    int32_t total = 0;
    for (int64_t first = 0; first < groups; first += warp_size) {
        const int64_t group = first + threadIdx.x;
        const int32_t own = group < groups ? int32_t(all.padded(group)) : 0, end = warp_sum_up_to(own);
        if (group < groups) begins[group] = total + end - own;
        total += __shfl_sync(whole_warp, end, warp_size - 1);
    }
    if (total <= rows) return;
    for (int64_t group = threadIdx.x; group < groups; group += warp_size) begins[group] = counts[group] = 0;
    if (threadIdx.x == 0) *overflow = 1;
}

/// A block for each group, whose warps scan one part of the assignments each, once to count and once to
/// place. All blocks together fill the rows after the last group.
__global__ void place_kernel(int32_t* slots, int32_t* sources, DeviceGroups groups, const int32_t* experts,
                             int64_t assignments, int64_t rows) {
    const int64_t group = blockIdx.x, begin = groups.begins[group];
    const int32_t own = int32_t(group);
    const bool has_rows = groups.counts[group] > 0;
    const int warp = int(threadIdx.x) / warp_size, lane = int(threadIdx.x) % warp_size;
    const int64_t part = (assignments + scan_threads - 1) / scan_threads * warp_size;
    const int64_t first = warp * part, end = first + part < assignments ? first + part : assignments;
    int32_t* const found = reinterpret_cast<int32_t*>(shared_memory());
    int32_t count = 0;
    for (int64_t a = first + lane; a < end; a += warp_size) count += experts[a] == own;
    count = warp_sum(count);
    if (lane == 0) found[warp] = count;
    __syncthreads();
    int64_t row = begin;
    for (int other = 0; other < warp; ++other) row += found[other];
    for (int64_t a = first + lane; a - lane < end; a += warp_size) {
        const bool is_own = a < end && experts[a] == own;
        if (group == 0 && a < end && experts[a] < 0) slots[a] = -1;
        const unsigned votes = __ballot_sync(whole_warp, is_own);
        if (is_own) {
            const int64_t slot = row + __popc(votes & ((1u << lane) - 1));
            slots[a] = has_rows ? int32_t(slot) : -1;
            if (has_rows) sources[slot] = int32_t(a);
        }
        row += __popc(votes);
    }
    const int64_t last = groups.number - 1, after = groups.begins[last] + groups.padded(last);
    for (int64_t i = begin + groups.counts[group] + threadIdx.x; i < begin + groups.padded(group);
         i += blockDim.x)
        sources[i] = -1;
    for (int64_t i = after + group * blockDim.x + threadIdx.x; i < rows; i += groups.number * blockDim.x)
        sources[i] = -1;
}

/// A thread for each assignment.
__global__ void units_kernel(int32_t* units, const int32_t* experts, int64_t tokens, int64_t top_k,
                             RankRows ranks) {
    const int64_t a = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, t = a / top_k;
    if (t >= tokens) return;
    const bool follows = a % top_k > 0 && ranks.rank_of(experts[a - 1]) == ranks.rank_of(experts[a]);
    units[a] = follows ? -1 : int32_t(ranks.unit(experts[a], t, tokens));
}

/// A block for each unit, which scans the assignments of its tokens.
__global__ void assignments_of_units_kernel(int32_t* assignments, const int32_t* experts, int64_t tokens,
                                            int64_t top_k, RankRows ranks) {
    const BlockTeam team(shared_memory());
    const int64_t rank = blockIdx.x / ranks.parts, each = ranks.tokens_of_part(tokens),
                  first = blockIdx.x % ranks.parts * each, left = first < tokens ? tokens - first : 0;
    const int32_t* const own = experts + first * top_k;
    const int32_t count = team.sum_of<int32_t>((left < each ? left : each) * top_k, [=](int64_t a) {
        return int32_t(ranks.rank_of(own[a]) == rank);
    });
    if (team.first()) assignments[blockIdx.x] = count;
}

/// A thread for each choice of a row, and each assignment.
__global__ void choices_kernel(int32_t* choices, float* numbers, int32_t* places, const int32_t* slots,
                               const int32_t* sources, const int32_t* experts, const float* weights,
                               int64_t all_choices, int64_t choices_of_row, int64_t assignments,
                               int64_t top_k, RankRows ranks) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < all_choices) {
        const int64_t first = sources[i / choices_of_row], a = first + i % choices_of_row;
        const bool is_there = first >= 0 && a / top_k == first / top_k &&
                              ranks.rank_of(experts[a]) == ranks.rank_of(experts[first]);
        choices[i] = is_there ? int32_t(experts[a] % ranks.experts) : -1;
        numbers[i] = is_there ? weights[a] : 0;
    }
    if (i >= assignments) return;
    int64_t first = i;
    while (first % top_k > 0 && ranks.rank_of(experts[first - 1]) == ranks.rank_of(experts[i])) --first;
    places[i] = int32_t(slots[first] * choices_of_row + i - first);
}

/// A thread for each assignment and each row of the blocks.
__global__ void rows_in_blocks_kernel(int32_t* slots, int32_t* sources, const int32_t* sorted,
                                      const int32_t* rows_of, int64_t assignments, int64_t ranks,
                                      int64_t room, int64_t* overflow) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < ranks * room && i % room >= rows_of[i / room]) sources[i] = -1;
    if (i >= assignments) return;
    int64_t rank = 0, place = sorted[i];
    if (place < 0) {
        slots[i] = -1;
        return;
    }
    for (; place >= rows_of[rank]; ++rank) place -= rows_of[rank];
    if (place < room)
        sources[rank * room + place] = int32_t(i);
    else
        *overflow = 1;
    slots[i] = int32_t(rank * room + (place < room ? place : room - 1));
}

/// Rows of one element: a thread for each.
template <class T>
__global__ void gather_numbers_kernel(Rows<T> out, Rows<const T> in, const int32_t* sources, int64_t per,
                                      int64_t rows) {
    const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const int64_t source = sources[row];
    *out[row] = source >= 0 ? *in[source / per] : store<T>(Acc<T>(0));
}

/// A block for each row.
template <class T>
__global__ void gather_rows_kernel(Rows<T> out, Rows<const T> in, const int32_t* sources, int64_t per,
                                   int64_t width) {
    const int64_t row = blockIdx.x, source = sources[row];
    const Threads team(threadIdx.x, blockDim.x);
    if (source >= 0)
        team.map(
            width, out[row], [](auto x) { return x; }, in[source / per]);
    else
        team.map(width, out[row], [] { return Acc<T>(0); });
}

template <int size, class T>
__device__ void sum_pack(T* y, const T* plus, Rows<const T> rows, const int32_t* slots, int64_t k,
                         int64_t j) {
    Acc<T> sums[size] = {};
    for (int64_t i = 0; i < k; ++i) {
        if (slots[i] < 0) continue;
        const Pack<T, size> pack = load_pack<size>(rows[slots[i]] + j);
        COEUS_UNROLL
        for (int e = 0; e < size; ++e) sums[e] += load(pack.values[e]);
    }
    Pack<T, size> out;
    if (plus) out = load_pack<size>(plus + j);
    COEUS_UNROLL
    for (int e = 0; e < size; ++e) out.values[e] = store<T>(plus ? load(out.values[e]) + sums[e] : sums[e]);
    store_pack<size>(y + j, out);
}

/// A block for each token. `size`: the elements that a thread moves together.
template <int size, class T>
__global__ void sum_rows_kernel(Rows<T> y, Rows<const T> plus, Rows<const T> rows, Rows<const int32_t> slots,
                                int64_t k, int64_t width) {
    const int64_t t = blockIdx.x, packs = width / size;
    const Threads team(threadIdx.x, blockDim.x);
    team.each(packs, [=](int64_t i) { sum_pack<size>(y[t], plus[t], rows, slots[t], k, i * size); });
    team.each(width - packs * size,
              [=](int64_t i) { sum_pack<1>(y[t], plus[t], rows, slots[t], k, packs * size + i); });
}

/// A block for each sequence and expert, which scans the sequence's assignments.
__global__ void count_by_sequence_kernel(int64_t* counts, const int32_t* experts, int64_t tokens,
                                         int64_t top_k, int64_t number, SequenceRows rows) {
    const BlockTeam team(shared_memory());
    const int64_t sequence = blockIdx.x / number, begin = rows.begin_of(sequence, tokens) * top_k,
                  end = rows.begin_of(sequence + 1, tokens) * top_k;
    const int32_t own = int32_t(blockIdx.x % number);
    const int64_t count =
        team.sum_of<int64_t>(end - begin, [=](int64_t a) { return int64_t(experts[begin + a] == own); });
    if (team.first()) counts[blockIdx.x] = count;
}

/// A warp for each token.
__global__ void balance_sequences_kernel(Rows<float> dlogits, float* losses, Rows<const float> logits,
                                         Rows<const int64_t> counts, int64_t tokens, int64_t experts,
                                         SequenceRows rows, double coefficient, RouteOptions o,
                                         const StepScalars* scalars) {
    const WarpTeam team;
    const int64_t warp = threadIdx.x / warp_size, t = int64_t(blockIdx.x) * (blockDim.x / warp_size) + warp;
    if (t >= tokens) return;
    float* const scores = reinterpret_cast<float*>(shared_memory()) + warp * 2 * experts;
    expert_scores(team, scores, logits[t], experts, o);
    const float loss = balance_sequence(team, dlogits[t], scores, counts[rows.sequence_of(t)], experts,
                                        float(coefficient * scalars->loss_scale), o);
    if (team.first()) losses[t] = loss;
}

/// One warp.
__global__ void balance_experts_kernel(float* bias, const int64_t* loads, int64_t experts, double rate,
                                       const StepScalars* scalars) {
    if (scalars->refusals == 0) rows::balance_experts(WarpTeam(), bias, loads, experts, rate);
}

void check_route(Tensor logits, Tensor experts, Tensor weights, const RouteOptions& o) {
    const int64_t count = logits.cols();
    require(experts.rows() == logits.rows() && experts.cols() == o.top_k && weights.shape == experts.shape &&
                experts.dense() && weights.dense() && weights.dtype == logits.dtype &&
                logits.dtype == Dtype::f32,
            "route: operands differ in shape or type");
    require(o.groups > 0 && count % o.groups == 0 && o.kept_groups >= 1 && o.kept_groups <= o.groups &&
                o.groups <= 64 && o.top_k >= 1 && o.top_k <= count / o.groups * o.kept_groups,
            "route: so many experts cannot be chosen");
}

/// Up to four warps in a block, as many as have room for their scratch memory.
Grid route_grid(int64_t tokens, int64_t experts) {
    constexpr int64_t most_shared_bytes = 48 << 10, most_warps = 4;
    const int64_t bytes = 2 * experts * int64_t(sizeof(float)),
                  warps = std::min(most_warps, most_shared_bytes / bytes);
    require(warps > 0, "route: a token has more experts than shared memory has room for");
    return {blocks_for(div_ceil(tokens, warps)), int(warps) * warp_size, size_t(warps * bytes)};
}

}  // namespace

void Cuda::route(Exec& exec, Tensor experts, Tensor weights, Tensor loads, Tensor logits, Tensor bias,
                 const RouteOptions& o) {
    check_route(logits, experts, weights, o);
    const int64_t count = logits.cols();
    require((!bias || (bias.count() == count && bias.dtype == logits.dtype)) &&
                (!loads || loads.count() == count),
            "route: operands differ in shape or type");
    launch(exec, "route", route_grid(logits.rows(), count), route_kernel, rows_of<int32_t>(experts),
           rows_of<float>(weights), rows_of<const float>(logits), bias ? bias.as<const float>() : nullptr,
           logits.rows(), count, o);
    if (loads)
        launch(exec, "count_loads", {blocks_for(count), scan_threads, BlockTeam::shared_bytes},
               count_kernel<int64_t>, loads.as<int64_t>(), experts.as<const int32_t>(), experts.count(),
               true);
}

void Cuda::route_backward(Exec& exec, Tensor dlogits, Tensor dweights, Tensor logits, Tensor experts,
                          const RouteOptions& o) {
    check_route(logits, experts, dweights, o);
    require(dlogits.shape == logits.shape, "route: operands differ in shape");
    launch(exec, "route_backward", route_grid(logits.rows(), logits.cols()), route_backward_kernel,
           rows_of<float>(dlogits), rows_of<const float>(dweights), rows_of<const float>(logits),
           rows_of<const int32_t>(experts), logits.rows(), logits.cols(), o);
}

void Cuda::group_by_expert(Exec& exec, Tensor slots, Tensor sources, const Groups& groups, Tensor experts,
                           int64_t* overflow) {
    const int64_t assignments = experts.count(), number = groups.number(), rows = sources.count();
    require(slots.count() == assignments &&
                (overflow || rows >= grouped_rows(assignments, number, groups.multiple)) && slots.dense() &&
                experts.dense(),
            "group_by_expert: operands do not fit");
    const DeviceGroups all = device_groups(groups);
    launch(exec, "count_experts", {blocks_for(number), scan_threads, BlockTeam::shared_bytes},
           count_kernel<int32_t>, groups.counts.as<int32_t>(), experts.as<const int32_t>(), assignments,
           false);
    launch(exec, "group_begins", {1, warp_size}, begins_kernel, groups.begins.as<int32_t>(),
           groups.counts.as<int32_t>(), all, rows, overflow);
    launch(exec, "group_by_expert", {blocks_for(number), scan_threads, scan_warps * sizeof(int32_t)},
           place_kernel, slots.as<int32_t>(), sources.as<int32_t>(), all, experts.as<const int32_t>(),
           assignments, rows);
}

void Cuda::units_of_rows(Exec& exec, Tensor units, Tensor assignments, Tensor experts,
                         const RankRows& ranks) {
    require(units.shape == experts.shape && units.dense() && experts.dense(),
            "units_of_rows: operands do not fit");
    launch(exec, "units_of_rows", {blocks_for(div_ceil(experts.count(), 256))}, units_kernel,
           units.as<int32_t>(), experts.as<const int32_t>(), experts.rows(), experts.cols(), ranks);
    if (assignments)
        launch(exec, "assignments_of_units",
               {blocks_for(assignments.count()), scan_threads, BlockTeam::shared_bytes},
               assignments_of_units_kernel, assignments.as<int32_t>(), experts.as<const int32_t>(),
               experts.rows(), experts.cols(), ranks);
}

void Cuda::choices_of_rows(Exec& exec, Tensor choices, Tensor numbers, Tensor places, Tensor slots,
                           Tensor sources, Tensor experts, Tensor weights, const RankRows& ranks) {
    require(choices.rows() == sources.count() && numbers.shape == choices.shape &&
                places.shape == experts.shape && slots.shape == experts.shape &&
                weights.shape == experts.shape && weights.dtype == Dtype::f32 && numbers.dtype == Dtype::f32,
            "choices_of_rows: operands differ in shape or type");
    launch(exec, "choices_of_rows", {blocks_for(div_ceil(std::max(choices.count(), experts.count()), 256))},
           choices_kernel, choices.as<int32_t>(), numbers.as<float>(), places.as<int32_t>(),
           slots.as<const int32_t>(), sources.as<const int32_t>(), experts.as<const int32_t>(),
           weights.as<const float>(), choices.count(), choices.cols(), experts.count(), experts.cols(),
           ranks);
}

void Cuda::rows_in_blocks(Exec& exec, Tensor slots, Tensor sources, Tensor sorted, Tensor counts,
                          int64_t* overflow) {
    const int64_t ranks = counts.count();
    require(
        slots.dense() && sorted.dense() && slots.count() == sorted.count() && sources.count() % ranks == 0,
        "rows_in_blocks: operands do not fit");
    launch(exec, "rows_in_blocks", {blocks_for(div_ceil(std::max(slots.count(), sources.count()), 256))},
           rows_in_blocks_kernel, slots.as<int32_t>(), sources.as<int32_t>(), sorted.as<const int32_t>(),
           counts.as<const int32_t>(), slots.count(), ranks, sources.count() / ranks, overflow);
}

void Cuda::gather_rows(Exec& exec, Tensor out, Tensor in, Tensor sources, int64_t per) {
    require(sources.count() == out.rows() && in.cols() == out.cols() && in.dtype == out.dtype,
            "gather_rows: operands differ in shape or type");
    dispatch(out.dtype, [&]<class T>(T) {
        if (out.cols() == 1)
            return launch(exec, "gather_numbers", {blocks_for(div_ceil(out.rows(), 256))},
                          gather_numbers_kernel<T>, rows_of<T>(out), rows_of<const T>(in),
                          sources.as<const int32_t>(), per, out.rows());
        launch(exec, "gather_rows", {blocks_for(out.rows()), threads_for(out.cols())}, gather_rows_kernel<T>,
               rows_of<T>(out), rows_of<const T>(in), sources.as<const int32_t>(), per, out.cols());
    });
}

void Cuda::sum_rows(Exec& exec, Tensor y, Tensor plus, Tensor rows, Tensor slots) {
    require(slots.rows() == y.rows() && slots.dense() && rows.cols() == y.cols() && rows.dtype == y.dtype &&
                (!plus || (plus.shape == y.shape && plus.dtype == y.dtype)),
            "sum_rows: operands differ in shape or type");
    dispatch(y.dtype, [&]<class T>(T) {
        const auto sum = [&]<int size>(std::integral_constant<int, size>) {
            launch(exec, "sum_rows", {blocks_for(y.rows()), threads_for(y.cols() / size)},
                   sum_rows_kernel<size, T>, rows_of<T>(y), rows_of<const T>(plus), rows_of<const T>(rows),
                   rows_of<const int32_t>(slots), slots.cols(), y.cols());
        };
        if (in_pieces({y, plus ? plus : y, rows}))
            sum(std::integral_constant<int, pack_count<T>()>());
        else
            sum(std::integral_constant<int, 1>());
    });
}

void Cuda::count_by_sequence(Exec& exec, Tensor counts, Tensor experts, const SequenceRows& rows) {
    require(experts.rows() > 0 && experts.dense() && counts.dense() &&
                rows.sequence_of(experts.rows() - 1) < counts.rows(),
            "count_by_sequence: operands do not fit");
    launch(exec, "count_by_sequence", {blocks_for(counts.count()), scan_threads, BlockTeam::shared_bytes},
           count_by_sequence_kernel, counts.as<int64_t>(), experts.as<const int32_t>(), experts.rows(),
           experts.cols(), counts.cols(), rows);
}

void Cuda::balance_sequences(Exec& exec, Tensor dlogits, Tensor losses, Tensor logits, Tensor counts,
                             const SequenceRows& rows, double coefficient, const RouteOptions& o,
                             const StepScalars& scalars) {
    require(dlogits.shape == logits.shape && losses.count() == logits.rows() &&
                counts.cols() == logits.cols() && logits.dtype == Dtype::f32,
            "balance_sequences: operands differ in shape or type");
    launch(exec, "balance_sequences", route_grid(logits.rows(), logits.cols()), balance_sequences_kernel,
           rows_of<float>(dlogits), losses.as<float>(), rows_of<const float>(logits),
           rows_of<const int64_t>(counts), logits.rows(), logits.cols(), rows, coefficient, o, &scalars);
}

void Cuda::balance_experts(Exec& exec, Tensor bias, Tensor loads, double rate, const StepScalars& scalars) {
    require(bias.count() == loads.count() && bias.dtype == Dtype::f32,
            "balance_experts: operands differ in shape or type");
    launch(exec, "balance_experts", {1, warp_size}, balance_experts_kernel, bias.as<float>(),
           loads.as<const int64_t>(), bias.count(), rate, &scalars);
}

}  // namespace coeus::cuda
