// SPDX-License-Identifier: Apache-2.0
// ExpertRounds: which rows go from each rank to each other one, and when, if R ranks divide the experts.
//
// Memory is planned before the router chooses, so a rank receives its rows in rounds of limited size: the
// first is as large as the mean times a factor, and the later ones are smaller. The size is the number of
// assignments to the rank's experts: a row that arrives has one or more of them. Senders divide their tokens
// in parts, and a round has whole parts: all rows that reach a rank are in the order of the parts, then of
// the senders, and a round takes the next ones as long as there is room. A sender has its rows in the order
// of the ranks, then of the tokens, so those of one round for one receiver are adjacent. Everyone computes
// all rounds from the counts of all ranks, so that all ranks make the same exchanges.
#pragma once

#include "coeus/comm/communicator.hpp"

#include <span>
#include <vector>

namespace coeus {

/// The most assignments to a rank's experts in a round.
struct ExpertCapacity {
    static constexpr int64_t parts = 16;  ///< in which a sender divides its tokens
    int64_t first = 0;
    int64_t later = 0;  ///< 0: there are no later rounds, since the first one has room for everything

    /// Each of `ranks` ranks has `tokens` tokens, each of which chooses top_k experts, at most `experts` of
    /// them on the same rank. The first round is `factor` (model.non_blocking_capacity_factor) times the
    /// mean, a later one a quarter of it; both have room for any part of the tokens of a sender.
    static ExpertCapacity of(int64_t ranks, int64_t tokens, int64_t top_k, int64_t experts, double factor);
    int64_t of_round(int64_t round) const { return round == 0 ? first : later; }
};

class ExpertRounds {
public:
    /// Room for this number of ranks.
    explicit ExpertRounds(int ranks) : to_(size_t(ranks)), from_(size_t(ranks)) {}

    /// Sets what each of R ranks sends: counts[R, 2, R, parts] are the rows, and then the assignments, of
    /// each rank and part (RankRows). `rank`: this one. The counts are kept by reference.
    void set(std::span<const int32_t> counts, int rank, const ExpertCapacity& capacity);
    /// Number of rounds, at least 1, the same on all ranks.
    int64_t count() const { return count_; }
    /// Selects a round.
    void select(int64_t round);
    /// Rows that arrive here, of all ranks.
    int64_t rows() const { return rows_; }
    /// For each rank, the rows that go there, of this rank's rows in the order of ranks and tokens ...
    std::span<const RowRange> sent() const { return to_; }
    /// ... and the rows that come from there.
    std::span<const RowRange> received() const { return from_; }

private:
    int64_t ranks() const { return int64_t(to_.size()); }
    int64_t parts() const { return int64_t(counts_.size()) / (2 * ranks() * ranks()); }
    int64_t rows_of(int64_t sender, int64_t receiver, int64_t part) const {
        return counts_[size_t((2 * sender * ranks() + receiver) * parts() + part)];
    }
    int64_t assignments_of(int64_t sender, int64_t receiver, int64_t part) const {
        return counts_[size_t(((2 * sender + 1) * ranks() + receiver) * parts() + part)];
    }
    // Calls each(round, part, sender) for all parts that reach a receiver, in their order.
    template <class Each>
    void for_parts(int64_t receiver, const Each& each) const;

    std::span<const int32_t> counts_;
    int64_t rank_ = 0, count_ = 1, rows_ = 0;
    ExpertCapacity capacity_;
    std::vector<RowRange> to_, from_;
};

}  // namespace coeus
