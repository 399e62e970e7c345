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

namespace {

// Places in the order of the experts, without padding.
void sort_by_expert(Ctx& c, Tensor slots, Tensor sources, Tensor counts, Tensor experts) {
    const Scope temps(c.temp);
    c.k.group_by_expert(c.exec, slots, sources,
                        {.begins = c.temp.alloc(Dtype::i32, {counts.count()}),
                         .counts = counts,
                         .assignments = experts.count(),
                         .multiple = 1},
                        experts);
}

}  // namespace

void RoundsExchange::place(Ctx& c, Tensor slots, Tensor sources, Tensor counts, Tensor experts) const {
    sort_by_expert(c, slots, sources, counts, experts);
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

ArrivingRows RoundsExchange::select(int64_t round, const ExpertRows& /*rows*/) const {
    rounds_.select(round);
    return rounds_.arriving();
}

void RoundsExchange::send(Exec& exec, Tensor arrived, Tensor sent) const {
    expert_ranks().all_to_all(exec, arrived, rounds_.received(), sent, rounds_.sent());
}

void RoundsExchange::send_back(Exec& exec, Tensor sent, Tensor arrived) const {
    expert_ranks().all_to_all(exec, sent, rounds_.sent(), arrived, rounds_.received());
}

int64_t BlocksExchange::room(const ExpertRows& rows) const {
    const int64_t worst = rows.tokens * std::min(rows.top_k, rows.experts);
    const double wanted = std::ceil(capacity_factor() * double(rows.count()) / double(rows.ranks));
    return wanted >= double(worst) ? worst : std::max<int64_t>(1, int64_t(wanted));
}

void BlocksExchange::place(Ctx& c, Tensor slots, Tensor sources, Tensor counts, Tensor experts) const {
    const Scope temps(c.temp);
    const Tensor sorted = c.temp.alloc(Dtype::i32, slots.shape);
    sort_by_expert(c, sorted, c.temp.alloc(Dtype::i32, {experts.count()}), counts, experts);
    c.k.rows_in_blocks(c.exec, slots, sources, sorted, counts, expert_ranks().size(), &c.scalars.overflow);
}

void BlocksExchange::prepare(const Exec& /*exec*/, Tensor /*counts*/, const ExpertRows& /*rows*/) const {}

int64_t BlocksExchange::rounds(const ExpertRows& /*rows*/) const {
    return 1;
}

ArrivingRows BlocksExchange::select(int64_t /*round*/, const ExpertRows& rows) const {
    return {
        .first_expert = expert_ranks().rank() * rows.experts, .experts = rows.experts, .room = room(rows)};
}

void BlocksExchange::send(Exec& exec, Tensor arrived, Tensor sent) const {
    expert_ranks().all_to_all(exec, arrived, sent);
}

void BlocksExchange::send_back(Exec& exec, Tensor sent, Tensor arrived) const {
    expert_ranks().all_to_all(exec, sent, arrived);
}

}  // namespace coeus
