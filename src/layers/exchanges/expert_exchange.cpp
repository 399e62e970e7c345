// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/exchanges/expert_exchange.hpp"

#include <algorithm>
#include <cmath>

namespace coeus {

const ExpertExchange& all_experts() {
    static Stream none(Stream::Mode::eager);
    static const RoundsExchange all(alone(), alone(), 1, none);
    return all;
}

double ExpertRows::share() const {
    // without each of the rank's experts, one choice after the other
    double none = 1;
    for (int64_t i = 0; i < top_k; ++i)
        none *= double(std::max<int64_t>(0, (ranks - 1) * experts - i)) / double(ranks * experts - i);
    return 1 - none;
}

namespace {

// Places of rows in the order of their units, without padding; counts are rows and assignments of each unit.
// Assignments may be absent.
void sort_by_unit(Ctx& c, Tensor slots, Tensor sources, Tensor rows, Tensor assignments, Tensor experts,
                  const RankRows& ranks) {
    const Scope temps(c.temp);
    const Tensor units = c.temp.alloc(Dtype::i32, experts.shape);
    c.k.units_of_rows(c.exec, units, assignments, experts, ranks);
    c.k.group_by_expert(c.exec, slots, sources,
                        {.begins = c.temp.alloc(Dtype::i32, {rows.count()}),
                         .counts = rows,
                         .assignments = experts.count(),
                         .multiple = 1},
                        units, &c.scalars.overflow);
}

}  // namespace

void RoundsExchange::place(Ctx& c, Tensor slots, Tensor sources, Tensor counts, Tensor experts,
                           const ExpertRows& rows) const {
    const int64_t units = rows.ranks * ExpertCapacity::parts;
    const Tensor both = counts.reshape({2, units});
    sort_by_unit(c, slots, sources, both.slice_rows(0, 1).reshape({units}),
                 both.slice_rows(1, 1).reshape({units}), experts, {rows.experts, ExpertCapacity::parts});
}

void RoundsExchange::prepare(const Exec& exec, Tensor counts, const ExpertRows& rows) const {
    if (expert_ranks().is_planned()) return;
    std::span<const int32_t> here = {counts.as<const int32_t>(), size_t(counts.count())};
    if (!exec.device->is_host()) {
        counts_on_host_.resize(here.size());
        exec.queue->copy(counts_on_host_.data(), counts.data, counts.bytes());
        exec.queue->finish();
        here = counts_on_host_;
    }
    rounds_.set(here, expert_ranks().rank(), capacity(rows));
}

int64_t RoundsExchange::rounds(const ExpertRows& rows) const {
    if (expert_ranks().is_planned()) return capacity(rows).later > 0 ? 2 : 1;
    return rounds_.count();
}

int64_t RoundsExchange::select(int64_t round, const ExpertRows& rows) const {
    if (expert_ranks().is_planned()) return arriving(round, rows);
    rounds_.select(round);
    return rounds_.rows();
}

void RoundsExchange::send(Exec& exec, Tensor arrived, Tensor sent) const {
    expert_ranks().all_to_all(exec, arrived, rounds_.received(), sent, rounds_.sent());
}

void RoundsExchange::send_back(Exec& exec, Tensor sent, Tensor arrived) const {
    expert_ranks().all_to_all(exec, sent, rounds_.sent(), arrived, rounds_.received());
}

int64_t BlocksExchange::room(const ExpertRows& rows) const {
    const double wanted = std::ceil(capacity_factor() * double(rows.tokens) * rows.share());
    return wanted >= double(rows.tokens) ? rows.tokens : std::max<int64_t>(1, int64_t(wanted));
}

ExpertCapacity BlocksExchange::capacity(const ExpertRows& rows) const {
    return {
        .first =
            ExpertCapacity::of(rows.ranks, rows.tokens, rows.top_k, rows.experts, capacity_factor()).first};
}

void BlocksExchange::place(Ctx& c, Tensor slots, Tensor sources, Tensor /*counts*/, Tensor experts,
                           const ExpertRows& rows) const {
    const Scope temps(c.temp);
    const Tensor sorted = c.temp.alloc(Dtype::i32, slots.shape),
                 rows_of = c.temp.alloc(Dtype::i32, {rows.ranks});
    sort_by_unit(c, sorted, c.temp.alloc(Dtype::i32, {rows.most()}), rows_of, {}, experts, {rows.experts, 1});
    c.k.rows_in_blocks(c.exec, slots, sources, sorted, rows_of, &c.scalars.overflow);
}

void BlocksExchange::prepare(const Exec& /*exec*/, Tensor /*counts*/, const ExpertRows& /*rows*/) const {}

int64_t BlocksExchange::rounds(const ExpertRows& /*rows*/) const {
    return 1;
}

int64_t BlocksExchange::select(int64_t round, const ExpertRows& rows) const {
    return arriving(round, rows);
}

void BlocksExchange::send(Exec& exec, Tensor arrived, Tensor sent) const {
    expert_ranks().all_to_all(exec, arrived, sent);
}

void BlocksExchange::send_back(Exec& exec, Tensor sent, Tensor arrived) const {
    expert_ranks().all_to_all(exec, sent, arrived);
}

}  // namespace coeus
