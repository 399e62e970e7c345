// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/exchanges/expert_rounds.hpp"

#include <algorithm>
#include <cmath>

namespace coeus {

ExpertCapacity ExpertCapacity::of(int64_t ranks, int64_t tokens, int64_t top_k, int64_t experts,
                                  double factor) {
    const int64_t most = std::min(top_k, experts), worst = ranks * tokens * most,
                  of_part = std::max<int64_t>(1, div_ceil(tokens, parts) * most);
    const double wanted = std::ceil(factor * double(tokens * top_k));
    if (wanted >= double(worst) || of_part >= worst) return {.first = worst};
    const int64_t first = std::max(of_part, int64_t(wanted));
    return {.first = first, .later = std::max(of_part, first / 4)};
}

template <class Each>
void ExpertRounds::for_parts(int64_t receiver, const Each& each) const {
    int64_t round = 0, taken = 0;
    for (int64_t part = 0; part < parts(); ++part)
        for (int64_t sender = 0; sender < ranks(); ++sender) {
            const int64_t count = assignments_of(sender, receiver, part);
            if (taken + count > capacity_.of_round(round)) {
                ++round;
                taken = 0;
                require(count <= capacity_.of_round(round), "more rows arrive than there can be");
            }
            taken += count;
            each(round, part, sender);
        }
}

void ExpertRounds::set(std::span<const int32_t> counts, int rank, const ExpertCapacity& capacity) {
    require(int64_t(counts.size()) % (2 * ranks() * ranks()) == 0, "each rank has equally many parts");
    counts_ = counts;
    rank_ = rank;
    capacity_ = capacity;
    count_ = 1;
    for (int64_t receiver = 0; receiver < ranks(); ++receiver)
        for_parts(receiver, [&](int64_t round, int64_t, int64_t) { count_ = std::max(count_, round + 1); });
}

void ExpertRounds::select(int64_t round) {
    std::ranges::fill(from_, RowRange{});
    std::ranges::fill(to_, RowRange{});
    int64_t first = 0;  // of this rank's rows for the receiver
    for (int64_t receiver = 0; receiver < ranks(); ++receiver) {
        RowRange& sent = to_[size_t(receiver)];
        for_parts(receiver, [&](int64_t of_part, int64_t part, int64_t sender) {
            const int64_t rows = rows_of(sender, receiver, part);
            if (receiver == rank_ && of_part == round) from_[size_t(sender)].count += rows;
            if (sender != rank_) return;
            if (of_part == round && rows > 0) {
                if (sent.count == 0) sent.first = first;
                sent.count += rows;
            }
            first += rows;
        });
    }
    rows_ = 0;
    for (RowRange& range : from_) {
        range.first = rows_;
        rows_ += range.count;
    }
}

}  // namespace coeus
