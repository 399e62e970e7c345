// SPDX-License-Identifier: Apache-2.0
// ExpertRounds: which rows go from each rank to each other one, and when, if R ranks divide the experts.
//
// Memory is planned before the router chooses, so a rank receives its rows in rounds of limited size: the
// first is as large as the mean times a factor, and the later ones are smaller. All rows that reach a rank
// are numbered by expert, then by sender, then by assignment; a round has the next numbers. A sender has its
// rows in the order of the experts, so those of one round for one receiver are adjacent. Everyone computes
// all rounds from the counts of all ranks, so that all ranks make the same exchanges.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/kernels/routing.hpp"

#include <span>
#include <vector>

namespace coeus {

/// The most rows that a rank receives in a round.
struct ExpertCapacity {
    int64_t first = 0;
    int64_t later = 0;  ///< 0: there are no later rounds, since the first one has room for all rows

    /// `assignments` are those of a rank, of `tokens` tokens; each chooses at most one of a rank's `experts`
    /// twice. `factor` (model.non_blocking_capacity_factor) times the mean number of rows is the first round.
    static ExpertCapacity of(int64_t ranks, int64_t tokens, int64_t top_k, int64_t experts, double factor);
    /// Rows in rounds before round i.
    int64_t before(int64_t round) const { return round == 0 ? 0 : first + (round - 1) * later; }
    int64_t of_round(int64_t round) const { return round == 0 ? first : later; }
};

class ExpertRounds {
public:
    /// Room for this number of ranks.
    explicit ExpertRounds(int ranks) : to_(size_t(ranks)), from_(size_t(ranks)) {}

    /// Sets what each rank sends: counts[R,E]. `rank`: this one. It is kept by reference.
    void set(std::span<const int32_t> counts, int rank, const ExpertCapacity& capacity);
    /// Number of rounds, at least 1, the same on all ranks.
    int64_t count() const { return count_; }
    /// Selects a round.
    void select(int64_t round);
    /// What arrives here in the selected round.
    const ArrivingRows& arriving() const { return arriving_; }
    /// Rows that arrive here, of all ranks.
    int64_t rows() const { return rows_; }
    /// For each rank, the rows that go there, of this rank's rows in the order of experts ...
    std::span<const RowRange> sent() const { return to_; }
    /// ... and the rows that come from there.
    std::span<const RowRange> received() const { return from_; }

private:
    int64_t ranks() const { return int64_t(to_.size()); }
    int64_t experts() const { return int64_t(counts_.size()) / ranks(); }
    int64_t of(int64_t rank, int64_t expert) const { return counts_[size_t(rank * experts() + expert)]; }

    std::span<const int32_t> counts_;
    int64_t rank_ = 0, count_ = 1, rows_ = 0;
    ExpertCapacity capacity_;
    ArrivingRows arriving_;
    std::vector<RowRange> to_, from_;
};

}  // namespace coeus
