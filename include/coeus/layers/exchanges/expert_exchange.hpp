// SPDX-License-Identifier: Apache-2.0
// ExpertExchange: how rows travel between the ranks that divide the experts of each layer. The row of a token
// goes once to each rank that has some of its experts.
//
//   RoundsExchange    exactly the rows that there are, in as many rounds as they need (expert_rounds.hpp).
//                     The host must know how many.
//   BlocksExchange    a block of equal size from each rank to each other one, so that nothing depends on the
//                     choice, as CUDA graphs need it. If a block has no room for all rows, or a rank none for
//                     all of its experts' rows, the step is refused (StepScalars::overflow), and must be
//                     repeated with rounds.
#pragma once

#include "coeus/device/stream.hpp"
#include "coeus/layers/context.hpp"
#include "coeus/layers/exchanges/expert_rounds.hpp"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

namespace coeus {

/// Rows of the tokens of each of R ranks: `tokens` tokens choose top_k of E experts, of which a rank has
/// `experts`.
struct ExpertRows {
    int64_t ranks = 1, tokens = 0, top_k = 0, experts = 0;

    int64_t assignments() const { return tokens * top_k; }
    /// The most experts of a token that one rank has.
    int64_t choices() const { return std::min(top_k, experts); }
    /// The most rows that a rank sends.
    int64_t most() const { return tokens * std::min(top_k, ranks); }
    /// The share of tokens that have experts on a given rank, if any choice is as likely.
    double share() const;
};

class ExpertExchange {
public:
    /// Each of `expert_ranks` has other experts; `tensor_ranks` divide each expert: the tensor-parallel
    /// ranks, or only this one. `factor`: model.non_blocking_capacity_factor. The exchanges run on `stream`.
    /// All must outlive it.
    ExpertExchange(const Communicator& expert_ranks, const Communicator& tensor_ranks, double factor,
                   Stream& stream)
        : expert_ranks_(expert_ranks),
          tensor_ranks_(tensor_ranks),
          stream_(stream),
          capacity_factor_(factor) {}
    virtual ~ExpertExchange() = default;

    const Communicator& expert_ranks() const { return expert_ranks_; }
    const Communicator& tensor_ranks() const { return tensor_ranks_; }
    Stream& stream() const { return stream_; }

    ExpertRows rows_of(int64_t tokens, int64_t top_k, int64_t experts) const {
        return {expert_ranks_.size(), tokens, top_k, experts};
    }
    /// The most assignments to a rank's experts in each round.
    virtual ExpertCapacity capacity(const ExpertRows& rows) const = 0;
    /// Rows that this rank has room for when it sends, and the most that arrive in a round.
    virtual int64_t sent(const ExpertRows& rows) const = 0;
    virtual int64_t arriving(int64_t round, const ExpertRows& rows) const = 0;
    /// How many counts each rank tells the others; 0: none.
    virtual int64_t counts(const ExpertRows& rows) const = 0;
    /// Finds a place for the row of each token and rank among the rows that are sent. experts i32[n,k]: those
    /// chosen. slots i32[n,k] and sources i32[sent(rows)] are as for group_by_expert: the row belongs to the
    /// token's first expert on the rank. counts i32[counts(rows)]: what the others must know.
    virtual void place(Ctx& c, Tensor slots, Tensor sources, Tensor counts, Tensor experts,
                       const ExpertRows& rows) const = 0;
    /// Called with the counts [R, counts(rows)] of all ranks, which must stay as they are until the last
    /// round; an absent tensor if there are none.
    virtual void prepare(const Exec& exec, Tensor counts, const ExpertRows& rows) const = 0;
    /// Number of rounds, at least 1, the same on all ranks.
    virtual int64_t rounds(const ExpertRows& rows) const = 0;
    /// Selects a round; returns how many rows arrive.
    virtual int64_t select(int64_t round, const ExpertRows& rows) const = 0;
    /// Rows of the selected round to their experts, in the order of the ranks, and back to their places.
    virtual void send(Exec& exec, Tensor arrived, Tensor sent) const = 0;
    virtual void send_back(Exec& exec, Tensor sent, Tensor arrived) const = 0;

    /// The other work that a computation does before it waits for an exchange. Absent: nothing.
    void set_meanwhile(std::function<void()> work) { meanwhile_ = std::move(work); }
    bool has_meanwhile() const { return bool(meanwhile_); }
    void meanwhile() const {
        if (meanwhile_) meanwhile_();
    }
    /// Rounds after the first one, of all forwards that count loads. The engine sets it to 0 before a step.
    int64_t extra_rounds() const { return extra_rounds_; }
    void add_extra_rounds(int64_t rounds) const { extra_rounds_ += rounds; }
    void forget_extra_rounds() { extra_rounds_ = 0; }

protected:
    double capacity_factor() const { return capacity_factor_; }

private:
    const Communicator &expert_ranks_, &tensor_ranks_;
    Stream& stream_;
    double capacity_factor_;
    std::function<void()> meanwhile_;
    mutable int64_t extra_rounds_ = 0;
};

class RoundsExchange : public ExpertExchange {
public:
    RoundsExchange(const Communicator& expert_ranks, const Communicator& tensor_ranks, double factor,
                   Stream& stream)
        : ExpertExchange(expert_ranks, tensor_ranks, factor, stream), rounds_(expert_ranks.size()) {}

    ExpertCapacity capacity(const ExpertRows& rows) const override {
        return ExpertCapacity::of(rows.ranks, rows.tokens, rows.top_k, rows.experts, capacity_factor());
    }
    int64_t sent(const ExpertRows& rows) const override { return rows.most(); }
    int64_t arriving(int64_t round, const ExpertRows& rows) const override {
        return std::min(capacity(rows).of_round(round), rows.ranks * rows.tokens);
    }
    int64_t counts(const ExpertRows& rows) const override { return 2 * rows.ranks * ExpertCapacity::parts; }
    void place(Ctx& c, Tensor slots, Tensor sources, Tensor counts, Tensor experts,
               const ExpertRows& rows) const override;
    /// On a GPU, waits for the counts.
    void prepare(const Exec& exec, Tensor counts, const ExpertRows& rows) const override;
    /// A planning run has no counts; it takes two, if there may be more than one.
    int64_t rounds(const ExpertRows& rows) const override;
    int64_t select(int64_t round, const ExpertRows& rows) const override;
    void send(Exec& exec, Tensor arrived, Tensor sent) const override;
    void send_back(Exec& exec, Tensor sent, Tensor arrived) const override;

private:
    // scratch memory
    mutable ExpertRounds rounds_;
    mutable std::vector<int32_t> counts_on_host_;
};

class BlocksExchange : public ExpertExchange {
public:
    using ExpertExchange::ExpertExchange;

    /// Rows of a block: the mean number times the factor, at most one for each token.
    int64_t room(const ExpertRows& rows) const;
    ExpertCapacity capacity(const ExpertRows& rows) const override;
    int64_t sent(const ExpertRows& rows) const override { return rows.ranks * room(rows); }
    int64_t arriving(int64_t /*round*/, const ExpertRows& rows) const override {
        return rows.ranks * room(rows);
    }
    int64_t counts(const ExpertRows& /*rows*/) const override { return 0; }
    void place(Ctx& c, Tensor slots, Tensor sources, Tensor counts, Tensor experts,
               const ExpertRows& rows) const override;
    void prepare(const Exec& exec, Tensor counts, const ExpertRows& rows) const override;
    int64_t rounds(const ExpertRows& rows) const override;
    int64_t select(int64_t round, const ExpertRows& rows) const override;
    void send(Exec& exec, Tensor arrived, Tensor sent) const override;
    void send_back(Exec& exec, Tensor sent, Tensor arrived) const override;
};

}  // namespace coeus
