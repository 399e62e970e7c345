// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/exchanges/expert_rounds.hpp"

#include <algorithm>
#include <cmath>

namespace coeus {

ExpertCapacity ExpertCapacity::of(int64_t ranks, int64_t tokens, int64_t top_k, int64_t experts,
                                  double factor) {
    const int64_t worst = ranks * tokens * std::min(top_k, experts);
    const double wanted = std::ceil(factor * double(tokens * top_k));
    if (wanted >= double(worst)) return {.first = worst};
    const int64_t first = std::max<int64_t>(1, int64_t(wanted));
    return {.first = first, .later = std::max<int64_t>(1, first / 4)};
}

void ExpertRounds::set(std::span<const int32_t> counts, int rank, const ExpertCapacity& capacity) {
    require(int64_t(counts.size()) % (ranks() * ranks()) == 0, "the ranks have equally many experts");
    counts_ = counts;
    rank_ = rank;
    capacity_ = capacity;
    const int64_t own = experts() / ranks();
    int64_t most = 0;
    for (int64_t receiver = 0; receiver < ranks(); ++receiver) {
        int64_t rows = 0;
        for (int64_t e = receiver * own; e < (receiver + 1) * own; ++e)
            for (int64_t sender = 0; sender < ranks(); ++sender) rows += of(sender, e);
        most = std::max(most, rows);
    }
    require(most <= capacity.first || capacity.later > 0, "more rows arrive than there can be");
    count_ = most <= capacity.first ? 1 : 1 + div_ceil(most - capacity.first, capacity.later);
}

void ExpertRounds::select(int64_t round) {
    const int64_t own = experts() / ranks();
    arriving_ = {.first_expert = rank_ * own,
                 .experts = own,
                 .begin = capacity_.before(round),
                 .end = capacity_.before(round + 1)};
    std::ranges::fill(from_, RowRange{});
    std::ranges::fill(to_, RowRange{});
    int64_t slot = 0;  // of this rank's rows, in the order of experts
    for (int64_t receiver = 0; receiver < ranks(); ++receiver) {
        int64_t number = 0;  // of the rows that reach the receiver
        RowRange& sent = to_[size_t(receiver)];
        for (int64_t e = receiver * own; e < (receiver + 1) * own; ++e)
            for (int64_t sender = 0; sender < ranks(); ++sender) {
                const int64_t count = of(sender, e), rows = arriving_.arriving(number, count);
                if (receiver == rank_) from_[size_t(sender)].count += rows;
                if (sender == rank_) {
                    if (rows > 0 && sent.count == 0) sent.first = slot + arriving_.before(number, count);
                    sent.count += rows;
                    slot += count;
                }
                number += count;
            }
    }
    rows_ = 0;
    for (RowRange& range : from_) {
        range.first = rows_;
        rows_ += range.count;
    }
}

}  // namespace coeus
